/** Requests to the agent. */

import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { join } from "node:path";
import tls from "node:tls";

import { AgentError } from "./errors.js";

/** @typedef {Record<string, unknown>} Document */
/** @typedef {{ socketPath: string } | { host: string, port: number }} Address */

/**
 * Owner of a partition, as the coordinators report it. It may have changed since.
 *
 * @typedef {{ participant: string, address: string, epoch: number, serves: boolean }} Owner
 */

/**
 * Partition of a key, and its owner if it has one.
 *
 * @typedef {{ table: string, partition: number, owner: Owner | undefined }} Whereabouts
 */

/** Longest silence of a stream, in milliseconds. */
const SILENCE_MS = 30_000;
/** Time for which credentials are used before the files are read again, in milliseconds. */
const CREDENTIALS_MS = 10_000;
/** Longest line of the stream, and longest answer, in bytes. */
const BYTES_MAX = 1024 * 1024;

/**
 * Returns the address of an agent.
 *
 * @param {string} agent
 * @returns {Address}
 * @throws {TypeError}
 */
export function parse(agent) {
  if (agent.startsWith("unix:") && agent.length > "unix:".length) return { socketPath: agent.slice("unix:".length) };
  const [, host, digits] = /^(.+):(\d{1,5})$/.exec(agent) ?? [];
  const port = Number(digits);
  if (host === undefined || !(port > 0 && port < 65536)) {
    throw new TypeError(`the address of the agent is HOST:PORT or unix:/path, not ${JSON.stringify(agent)}`);
  }
  return { host: host.replace(/^\[(.*)\]$/, "$1"), port };
}

/**
 * Credentials of a connection with TLS, as the options of `https` name them.
 *
 * @typedef {Pick<https.RequestOptions, "ca" | "cert" | "key" | "minVersion" | "checkServerIdentity">} Credentials
 */

/**
 * Reads the credentials in a directory with ca.crt, tls.crt and tls.key, as `archon cert participant` writes it. The
 * certificate of the agent must name its host, and be of a participant.
 *
 * @param {string} tlsDir
 * @returns {Credentials}
 */
export function credentials(tlsDir) {
  const file = (/** @type {string} */ name) => readFileSync(join(tlsDir, name));
  return {
    ca: file("ca.crt"),
    cert: file("tls.crt"),
    key: file("tls.key"),
    minVersion: "TLSv1.3",
    checkServerIdentity: (host, certificate) => {
      const names = (certificate.subjectaltname ?? "").split(", ");
      if (!names.some((name) => name.startsWith("URI:archon:///participant/"))) {
        return new Error(`the certificate at ${host} is not of a participant`);
      }
      return tls.checkServerIdentity(host, certificate);
    },
  };
}

/**
 * Returns the document in a text; undefined if it is none.
 *
 * @param {string} text
 * @returns {Document | undefined}
 */
function document(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Returns a number of a document that is exact.
 *
 * @param {Document} from
 * @param {string} name
 * @returns {number}
 */
export function integer(from, name) {
  const value = from[name];
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw new Error(`${name} is no number: ${JSON.stringify(value)}`);
  }
  return value;
}

/**
 * @param {Document} from
 * @param {string} name
 * @returns {string}
 */
export function string(from, name) {
  const value = from[name];
  if (typeof value !== "string") throw new Error(`${name} is no text: ${JSON.stringify(value)}`);
  return value;
}

/**
 * Reads a whole answer.
 *
 * @param {http.IncomingMessage} response
 * @returns {Promise<string>}
 */
async function body(response) {
  const chunks = [];
  let length = 0;
  for await (const chunk of response) {
    length += chunk.length;
    if (length > BYTES_MAX) throw new Error(`the answer has more than ${BYTES_MAX} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/**
 * Sends a request, and waits for the head of the answer.
 *
 * @param {Address} address
 * @param {Credentials | undefined} tls
 * @param {https.RequestOptions} options
 * @param {string | undefined} data
 * @returns {{ request: http.ClientRequest, head: Promise<http.IncomingMessage> }}
 */
function send(address, tls, options, data) {
  const headers = { ...options.headers, ...(data === undefined ? {} : { "content-length": Buffer.byteLength(data) }) };
  // A name may stand for several addresses, and the agent listens on one.
  const target = "port" in address ? { ...address, autoSelectFamily: true } : address;
  const request =
    tls === undefined
      ? http.request({ ...target, ...options, headers })
      : https.request({ ...target, ...options, ...tls, headers });
  const head = new Promise((resolve, reject) => {
    request.on("response", resolve);
    request.on("error", reject);
    request.on("close", () => reject(new Error("the connection has ended")));
  });
  request.end(data);
  return { request, head };
}

/**
 * Returns the error of a refused request.
 *
 * @param {http.IncomingMessage} response
 */
async function refusal(response) {
  const error = document(await body(response))?.["error"];
  if (typeof error === "object" && error !== null && "kind" in error && "message" in error) {
    return new AgentError(String(error.kind), String(error.message));
  }
  return new AgentError("unreachable", `the agent answered ${response.statusCode} without a document`);
}

/**
 * Returns the text of a thrown value.
 *
 * @param {unknown} error
 * @returns {string}
 */
export function text(error) {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return "an error without a text";
  }
}

/** Requests one at a time over a connection that is kept open. All requests may be repeated. */
export class Caller {
  #agent;
  #address;
  #tlsDir;
  /** @type {Credentials | undefined} */
  #credentials;
  #readAt = Number.NaN;
  #pool;
  #isClosed = false;
  /** @type {Set<http.ClientRequest>} */
  #requests = new Set();

  /**
   * @param {string} agent
   * @param {number} timeoutMs Time limit of a request.
   * @param {string} [tlsDir] Directory of credentials.
   */
  constructor(agent, timeoutMs, tlsDir) {
    this.#agent = agent;
    this.#address = parse(agent);
    this.#tlsDir = tlsDir;
    const pool = { keepAlive: true, maxSockets: 1 };
    this.#pool = tlsDir === undefined ? new http.Agent(pool) : new https.Agent(pool);
    this.timeoutMs = timeoutMs;
  }

  /**
   * Sends a request and returns the document of the answer.
   *
   * @param {"GET" | "POST"} method
   * @param {string} path
   * @param {string | undefined} session
   * @param {Document | Document[]} [data]
   * @param {number} [withinMs]
   * @returns {Promise<Document>}
   * @throws {AgentError} If it is refused, or gets no answer in time.
   */
  async call(method, path, session, data, withinMs = this.timeoutMs) {
    const timeoutMs = Math.max(10, Math.min(this.timeoutMs, withinMs));
    const headers = session === undefined ? {} : { "archon-session": session };
    for (let attempt = 1; ; attempt += 1) {
      if (this.#isClosed) throw new AgentError("unreachable", "the participant has stopped");
      const sent = data === undefined ? undefined : JSON.stringify(data);
      const { request, head } = this.#send({ agent: this.#pool, method, path, headers }, sent);
      this.#requests.add(request);
      let isLate = false;
      /** @type {NodeJS.Timeout | undefined} */
      let timer;
      // A request that waits for the connection does not notice that it was destroyed before it gets one.
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => {
          isLate = true;
          const error = new Error(`no answer within ${Math.ceil(timeoutMs)} ms`);
          reject(error);
          request.destroy(error);
        }, timeoutMs);
      });
      late.catch(() => {});
      head.catch(() => {});
      try {
        const response = await Promise.race([head, late]);
        if (response.statusCode !== 200) throw await refusal(response);
        const answer = document(await body(response));
        if (answer === undefined) throw new Error("the answer is no document");
        return answer;
      } catch (error) {
        if (error instanceof AgentError) throw error;
        // The agent closes idle connections.
        if (isLate || attempt === 2) {
          const why = `the agent at ${this.#agent} does not answer: ${text(error)}`;
          throw new AgentError("unreachable", why, { cause: error });
        }
      } finally {
        clearTimeout(timer);
        this.#requests.delete(request);
      }
    }
  }

  /**
   * Reads the credentials again. The present ones stay while the files are unreadable, or being replaced one by one.
   *
   * @param {string} tlsDir
   */
  #renew(tlsDir) {
    try {
      const found = credentials(tlsDir);
      tls.createSecureContext(found);
      this.#credentials = found;
      this.#readAt = Date.now();
    } catch (error) {
      if (this.#credentials === undefined) {
        throw error;
      }
    }
  }

  /**
   * @param {https.RequestOptions} options
   * @param {string | undefined} sent
   */
  #send(options, sent) {
    try {
      if (this.#tlsDir !== undefined && !(Date.now() - this.#readAt < CREDENTIALS_MS)) {
        this.#renew(this.#tlsDir);
      }
      return send(this.#address, this.#credentials, options, sent);
    } catch (error) {
      // The credentials cannot be read.
      throw new AgentError("unreachable", `the agent at ${this.#agent} is not called: ${text(error)}`, { cause: error });
    }
  }

  /** Ends the connection and all requests for good. */
  close() {
    this.#isClosed = true;
    for (const request of this.#requests) request.destroy();
    this.#pool.destroy();
  }
}

/** Events of one connection. */
export class Stream {
  #agent;
  #address;
  #tlsDir;
  #isShut = false;
  /** @type {http.ClientRequest | undefined} */
  #request;
  /** @type {http.IncomingMessage | undefined} */
  #response;

  /**
   * @param {string} agent
   * @param {string} [tlsDir] Directory of credentials.
   */
  constructor(agent, tlsDir) {
    this.#agent = agent;
    this.#address = parse(agent);
    this.#tlsDir = tlsDir;
  }

  /**
   * Connects.
   *
   * @param {string} session
   * @param {number} position Number of the newest event that has arrived.
   * @param {number} timeoutMs
   * @throws {AgentError}
   */
  async open(session, position, timeoutMs) {
    const headers = { "archon-session": session, "last-event-id": String(position) };
    let timer;
    try {
      if (this.#isShut) throw new Error("the participant has stopped");
      const tls = this.#tlsDir === undefined ? undefined : credentials(this.#tlsDir);
      const { request, head } = send(this.#address, tls, { agent: false, path: "/v1/events", headers }, undefined);
      this.#request = request;
      timer = setTimeout(() => request.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
      this.#response = await head;
      if (this.#response.statusCode !== 200) throw await refusal(this.#response);
      // The agent sends a comment every 10 s.
      request.setTimeout(SILENCE_MS, () => request.destroy());
    } catch (error) {
      this.shut();
      if (error instanceof AgentError) throw error;
      throw new AgentError("unreachable", `the agent at ${this.#agent} does not answer: ${text(error)}`, { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Yields events until the connection ends.
   *
   * @returns {AsyncGenerator<Document, void, void>}
   */
  async *events() {
    if (this.#response === undefined) return;
    let rest = Buffer.alloc(0);
    try {
      for await (const chunk of this.#response) {
        rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
        let begin = 0;
        for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10, begin)) {
          const line = rest.toString("utf8", begin, end);
          begin = end + 1;
          if (!line.startsWith("data: ")) continue;
          const event = document(line.slice("data: ".length));
          if (event === undefined) return;
          yield event;
        }
        rest = rest.subarray(begin);
        if (rest.length > BYTES_MAX) return;
      }
    } catch {
      // The connection has ended by an error.
    }
  }

  /** Ends the connection: the reader finds its end. */
  shut() {
    this.#isShut = true;
    this.#request?.destroy();
    this.#response?.destroy();
  }
}
