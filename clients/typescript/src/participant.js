/** The participant: it reads events, sends heartbeats, and runs callbacks. */

import { performance } from "node:perf_hooks";

import { clock, left } from "./clock.js";
import { AgentError, NotOwned } from "./errors.js";
import { Flag } from "./flag.js";
import { createGrant, loseGrant, Permission, stateOf } from "./grant.js";
import { Caller, credentials, integer, parse, Stream, string, text } from "./http.js";

/** @typedef {import("./grant.js").Grant} Grant */
/** @typedef {import("./http.js").Document} Document */
/** @typedef {import("./http.js").Whereabouts} Whereabouts */
/** @typedef {"debug" | "info" | "warning" | "error"} Level */

/**
 * `acquire` prepares to own a partition: it writes `grant.epoch` to storage first, then loads. An exception refuses the
 * partition. `release` finishes the work for a partition that is still owned. `lost` discards what is in memory: another
 * process may own the partition. For one partition they run one after the other; all are optional.
 *
 * @typedef {object} Options
 * @property {string} [agent] `HOST:PORT` or `unix:/path` of the agent; `127.0.0.1:7700` by default.
 * @property {string} [tlsDir] Directory with `ca.crt`, `tls.crt` and `tls.key` of the same participant
 *   (`archon cert participant`), for an agent on another machine. The files are read again after 10 s, so they can be renewed.
 * @property {(grant: Grant) => Promise<void> | void} [acquire]
 * @property {(grant: Grant, reason: string) => Promise<void> | void} [release]
 * @property {(grant: Grant) => Promise<void> | void} [lost]
 * @property {() => boolean} [isAlive] Called before each heartbeat. While it throws or returns anything but true, no heartbeat is sent:
 *   the permission ends, and others get the partitions.
 * @property {number} [callbacksMax] Callbacks that run at a time, of different partitions; 64 by default.
 * @property {number} [startWithinMs] Time limit of `start`; 30 s by default.
 * @property {number} [stopWithinMs] Time limit of `stop`; 10 s by default.
 * @property {(level: Level, message: string) => void} [log] By default, warnings and errors go to `console.error`.
 */

/** Milliseconds between attempts to reach the agent. */
const RETRY_MS = 100;
/** Time limit of one request. */
const REQUEST_MS = 5000;
/** Longest reason of a refusal, in bytes of UTF-8. The agent takes a body of 64 KiB. */
const REASON_BYTES_MAX = 1024;

/**
 * @param {Level} level
 * @param {string} message
 */
function logToConsole(level, message) {
  if (level === "warning" || level === "error") console.error(`archon-participant: ${level}: ${message}`);
}

/**
 * Returns the text of an error, in a form that the agent takes.
 *
 * @param {unknown} error
 */
function reasonOf(error) {
  const bytes = Buffer.from(text(error) || "error", "utf8").subarray(0, REASON_BYTES_MAX);
  // A character that was cut is left out.
  return new TextDecoder().decode(bytes, { stream: true });
}

/**
 * @param {string} table
 * @param {number} partition
 */
function keyOf(table, partition) {
  return `${partition} of ${table}`;
}

/**
 * Percent-encodes a text or bytes.
 *
 * @param {string | Uint8Array} key
 */
function quote(key) {
  const encode = (/** @type {number} */ byte) => {
    const character = String.fromCharCode(byte);
    return /[\w.~-]/.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  };
  return Array.from(typeof key === "string" ? Buffer.from(key, "utf8") : key, encode).join("");
}

/** One session with the agent. */
class Session {
  permission = new Permission();
  /** @type {Map<string, Grant>} */
  grants = new Map();
  over = new Flag();
  /** Set once this side gives the session up: the agent refuses it. */
  failed = new Flag();

  /** @param {Document} hello */
  constructor(hello) {
    this.name = string(hello, "session");
    const tables = hello["tables"];
    if (!Array.isArray(tables)) throw new Error("hello names no tables");
    this.tables = tables.map(String);
    this.leaseMs = integer(hello, "service_lease_for_ms");
    this.heartbeatEveryMs = integer(hello, "heartbeat_every_for_ms");
  }
}

/**
 * A service's membership in a cluster, through the agent beside it.
 *
 * Callbacks and heartbeats run on the event loop. A loop that is blocked sends no heartbeats, so it loses its partitions; a
 * service that hangs in another way keeps them, unless it gives `isAlive`.
 *
 * If the agent restarts, or the session ends otherwise, everything is lost, and a new session begins by itself. An object is
 * started once.
 */
export class Participant {
  #options;
  #tlsDir;
  #callbacksMax;
  #answers;
  #questions;
  #heartbeats;
  #isStarted = false;
  /** @type {Promise<unknown>} */
  #loops = Promise.resolve();
  #connected = new Flag();
  #stopping = new Flag();
  #closing = new Flag();
  #beat = new Flag();
  /** @type {Session | undefined} */
  #session;
  /** @type {Stream | undefined} */
  #stream;
  /** @type {Error | undefined} */
  #error;
  /** Work of each partition, in its order. @type {Map<string, (() => Promise<void>)[]>} */
  #work = new Map();
  /** Partitions with work that has not begun. @type {Set<string>} */
  #ready = new Set();
  #running = 0;
  #idle = new Flag();
  /** Owned grants that each reader of `acquired` has not seen. @type {Set<{ grants: Set<Grant>, changed: Flag }>} */
  #readers = new Set();

  /**
   * @param {string} table
   * @param {Options} [options]
   * @throws {TypeError} If the address of the agent is malformed.
   * @throws {Error} If the credentials cannot be read.
   */
  constructor(table, options = {}) {
    /** @readonly */
    this.table = table;
    /** @readonly */
    this.agent = options.agent ?? "127.0.0.1:7700";
    this.#tlsDir = options.tlsDir;
    const address = parse(this.agent);
    if (this.#tlsDir !== undefined) {
      if ("socketPath" in address) throw new TypeError("a Unix socket has no TLS: leave tlsDir out");
      credentials(this.#tlsDir);
    }
    this.#options = options;
    this.#callbacksMax = Math.max(1, options.callbacksMax ?? 64);
    this.#answers = new Caller(this.agent, REQUEST_MS, this.#tlsDir);
    this.#questions = new Caller(this.agent, REQUEST_MS, this.#tlsDir);
    this.#heartbeats = new Caller(this.agent, REQUEST_MS, this.#tlsDir);
    this.#idle.set();
  }

  /**
   * @param {Level} level
   * @param {string} message
   */
  #log(level, message) {
    try {
      (this.#options.log ?? logToConsole)(level, message);
    } catch {
      // A log that fails ends no session.
    }
  }

  // Life

  /**
   * Connects to the agent.
   *
   * @returns {Promise<this>}
   * @throws {AgentError} If that takes too long, or the agent serves other tables.
   */
  async start() {
    if (this.#isStarted || this.#stopping.isSet) throw new Error("a participant is started once: make another one");
    this.#isStarted = true;
    this.#loops = Promise.all([this.#runSessions(), this.#runHeartbeats()]);
    const isConnected = await this.#connected.wait(this.#options.startWithinMs ?? 30_000);
    if (this.#session !== undefined && isConnected && !this.#stopping.isSet) return this;
    const [wasStopped, error] = [this.#stopping.isSet, this.#error];
    await this.#close(performance.now() + 1000);
    if (wasStopped) throw new AgentError("unreachable", "the participant was stopped while it started");
    if (error !== undefined && !(error instanceof AgentError)) {
      throw new AgentError("invalid", `the agent at ${this.agent} sends no valid events: ${error.message}`, { cause: error });
    }
    throw error ?? new AgentError("unreachable", `the agent at ${this.agent} does not answer`);
  }

  /**
   * The reason why there is no session now; undefined while there is one, and before the first attempt. The package tries
   * again by itself. A service may report this error in its health check.
   *
   * @returns {Error | undefined}
   */
  get error() {
    return this.#error;
  }

  /**
   * Releases everything and disconnects. Resolves at most a second after the time limit, also if a callback does not end.
   *
   * @param {number} [withinMs]
   * @returns {Promise<boolean>} Whether everything was released in time.
   */
  async stop(withinMs = this.#options.stopWithinMs ?? 10_000) {
    const now = performance.now();
    const deadline = now + withinMs;
    // No session begins after this one.
    this.#stopping.set();
    this.#connected.set();
    const session = this.#session;
    let isReleased = false;
    if (session !== undefined && !session.over.isSet) {
      try {
        await this.#answer(session, { answer: "stop" }, Math.min(deadline, now + 1000));
        isReleased = (await session.over.wait(deadline - performance.now())) && !session.failed.isSet;
      } catch (error) {
        this.#log("warning", `the stop did not reach the agent: ${text(error)}`);
      }
    }
    await this.#close(Math.max(deadline, performance.now() + 500));
    return isReleased;
  }

  /** @param {number} deadline */
  async #close(deadline) {
    for (const flag of [this.#stopping, this.#connected, this.#closing, this.#beat]) flag.set();
    this.#stream?.shut();
    this.#heartbeats.close();
    if (this.#session !== undefined) this.#end(this.#session, "the participant has stopped");
    // No answer has an effect after the end of the session.
    this.#answers.close();
    this.#questions.close();
    for (const reader of this.#readers) reader.changed.set();
    const ended = new Flag();
    void this.#loops.then(() => ended.set());
    await ended.wait(deadline - performance.now());
    // Callbacks that are in progress. They may have called `stop`, so there is a time limit.
    await this.#idle.wait(deadline - performance.now());
  }

  // Grants

  /**
   * Returns the grant of a partition that accepts new work. Call it for each piece of work.
   *
   * @param {number} partition
   * @param {string} [table]
   * @returns {Grant}
   * @throws {NotOwned}
   */
  grant(partition, table = this.table) {
    const grant = this.#session?.grants.get(keyOf(table, partition));
    if (grant === undefined || stateOf(grant).stage !== "owned" || grant.validForMs() <= 0) {
      throw new NotOwned(`partition ${partition} of ${table} is not owned here`);
    }
    return grant;
  }

  /**
   * Returns all grants that accept new work now.
   *
   * @returns {Grant[]}
   */
  owned() {
    const grants = [...(this.#session?.grants.values() ?? [])];
    return grants.filter((grant) => stateOf(grant).stage === "owned" && grant.validForMs() > 0);
  }

  /**
   * Yields each grant once it is owned, those that are owned now first. Ends when the participant stops.
   *
   * A task for the grant ends once `grant.isReleasing` or `grant.signal.aborted`. `release` waits for that task: the next owner
   * begins after it.
   *
   * @returns {AsyncGenerator<Grant, void, void>}
   */
  async *acquired() {
    const present = [...(this.#session?.grants.values() ?? [])].filter((grant) => stateOf(grant).stage === "owned");
    const reader = { grants: new Set(present), changed: new Flag() };
    this.#readers.add(reader);
    try {
      while (!this.#closing.isSet) {
        for (const grant of reader.grants) {
          reader.grants.delete(grant);
          yield grant;
        }
        // Set while the caller worked, perhaps.
        if (reader.grants.size === 0) await reader.changed.wait(Infinity);
        reader.changed.clear();
      }
    } finally {
      this.#readers.delete(reader);
    }
  }

  /**
   * Asks the agent for the owner of a key's partition.
   *
   * @param {string | Uint8Array} key
   * @param {string} [table]
   * @returns {Promise<Whereabouts>}
   */
  async where(key, table = this.table) {
    const found = await this.#questions.call("GET", `/v1/where/${quote(key)}?table=${quote(table)}`, undefined);
    const owner = /** @type {Document | null | undefined} */ (found["owner"]);
    const known = owner && {
      participant: string(owner, "participant"),
      address: string(owner, "address"),
      epoch: integer(owner, "epoch"),
      serves: owner["serves"] === true,
    };
    return { table: string(found, "table"), partition: integer(found, "partition"), owner: known || undefined };
  }

  /**
   * Gives a partition up: `release` is called, and then another participant gets it if there is one.
   *
   * @param {Grant} grant
   * @returns {Promise<void>}
   */
  async drop(grant) {
    const { table, partition, epoch } = grant;
    const session = this.#session;
    if (session !== undefined) {
      await this.#answers.call("POST", "/v1/answers", session.name, { answer: "drop", table, partition, epoch });
    }
  }

  /**
   * Sets the load that `archon node list` shows.
   *
   * @param {{ bytesStored: number, operationsPerSecond: number }} load
   * @returns {Promise<void>}
   */
  async publishLoad({ bytesStored, operationsPerSecond }) {
    const session = this.#session;
    if (session !== undefined) {
      const body = {
        answer: "load",
        bytes_stored: Math.round(bytesStored),
        operations_per_second: Math.round(operationsPerSecond),
      };
      await this.#answers.call("POST", "/v1/answers", session.name, body);
    }
  }

  // Events

  async #runSessions() {
    while (!this.#stopping.isSet) {
      let wait = RETRY_MS;
      try {
        // A session without heartbeats would end at once.
        if (this.#mayBeat()) await this.#runSession();
      } catch (caught) {
        const error = caught instanceof Error ? caught : new Error(String(caught));
        const isNew = error.message !== this.#error?.message;
        this.#error = error;
        if (error instanceof AgentError && (error.kind === "unreachable" || error.kind === "busy")) {
          this.#log("debug", `no session yet: ${error.message}`);
        } else {
          wait = 10 * RETRY_MS;
          this.#log(isNew ? "error" : "debug", `no session: ${error.message}`);
          // Ends `start`, unless another attempt may succeed.
          if (error instanceof AgentError) this.#connected.set();
        }
      }
      await this.#closing.wait(wait);
    }
  }

  /** Runs one session to its end. */
  async #runSession() {
    /** @type {Session | undefined} */
    let session;
    try {
      for (;;) {
        const stream = await this.#connect(session);
        if (stream === undefined) return;
        try {
          for await (const event of stream.events()) {
            if (event["event"] === "hello") session ??= this.#begin(event);
            else if (session !== undefined) this.#take(session, event);
          }
        } finally {
          this.#stream = undefined;
          stream.shut();
        }
        if (session === undefined || session.over.isSet || session.failed.isSet || this.#closing.isSet) return;
      }
    } finally {
      if (session !== undefined) this.#end(session, "the connection to the agent has ended");
    }
  }

  /**
   * @param {string} session
   * @param {number} position
   */
  async #open(session, position) {
    const stream = new Stream(this.agent, this.#tlsDir);
    this.#stream = stream;
    if (this.#closing.isSet) stream.shut();
    await stream.open(session, position, REQUEST_MS);
    return stream;
  }

  /**
   * Connects to a new session, or again to the present one. Gives the latter up once the permission has ended: the agent
   * then has given up as well.
   *
   * @param {Session | undefined} session
   * @returns {Promise<Stream | undefined>}
   */
  async #connect(session) {
    if (session === undefined) return this.#open("new", 0);
    const began = performance.now();
    while (!this.#closing.isSet && !session.failed.isSet) {
      try {
        return await this.#open(session.name, session.permission.received);
      } catch (error) {
        const isUnreachable = error instanceof AgentError && error.kind === "unreachable";
        const isOld = performance.now() - began > session.leaseMs && left(session.permission.until) <= 0;
        if (!isUnreachable || isOld) return undefined;
        await this.#closing.wait(RETRY_MS / 4);
      }
    }
    return undefined;
  }

  /**
   * Gives a session up that the agent does not understand. The reader of the events ends it.
   *
   * @param {Session} session
   * @param {Error} error
   */
  #abandon(session, error) {
    this.#log("error", `session ${session.name} ends: the agent refuses an answer: ${error.message}`);
    session.permission.end();
    session.failed.set();
    this.#error = error;
    if (this.#session === session) this.#stream?.shut();
  }

  /** @param {Document} hello */
  #begin(hello) {
    if (hello["version"] !== 1) {
      throw new AgentError("invalid", `the agent speaks version ${hello["version"]} of the protocol, not 1`);
    }
    const session = new Session(hello);
    if (!session.tables.includes(this.table)) {
      throw new AgentError("not_found", `the agent serves ${session.tables.join(", ")}, not ${this.table}`);
    }
    this.#session = session;
    this.#error = undefined;
    this.#connected.set();
    this.#beat.set();
    return session;
  }

  /**
   * Applies an event at once; callbacks run later. An unknown event is from a newer agent, and has no effect.
   *
   * @param {Session} session
   * @param {Document} event
   */
  #take(session, event) {
    const { permission } = session;
    const sequence = integer(event, "sequence");
    if (session.over.isSet || permission.isEnded || sequence <= permission.received) return;
    if (sequence !== permission.received + 1) {
      // A loss may be missing.
      throw new Error(`event ${sequence} follows event ${permission.received}`);
    }
    const kind = event["event"];
    if (kind === "ended") {
      this.#end(session, String(event["reason"] ?? ""));
      return;
    }
    if (kind === "acquire" || kind === "release" || kind === "lost") {
      const [table, partition] = [string(event, "table"), integer(event, "partition")];
      const key = keyOf(table, partition);
      if (kind === "acquire") {
        const [tableId, epoch] = [integer(event, "table_id"), integer(event, "epoch")];
        const grant = createGrant({ table, tableId, partition, epoch, sequence }, permission);
        session.grants.set(key, grant);
        this.#dispatch(key, () => this.#runAcquire(session, grant));
      } else if (kind === "release") {
        const grant = session.grants.get(key);
        // The answer to `acquired` may be on its way: acquiring.
        if (grant !== undefined && stateOf(grant).advance(["acquiring", "owned"], "releasing")) {
          const reason = String(event["reason"] ?? "");
          this.#dispatch(key, () => this.#runRelease(session, grant, sequence, reason));
        }
      } else {
        this.#lose(session, key);
      }
    }
    permission.receive(sequence);
  }

  /**
   * @param {Session} session
   * @param {string} key
   */
  #lose(session, key) {
    const grant = session.grants.get(key);
    session.grants.delete(key);
    // After `released` there is nothing to lose.
    if (grant !== undefined && this.#void(grant)) this.#dispatch(key, () => this.#runLost(grant));
  }

  /**
   * Makes a grant void for good. Returns whether it was not before.
   *
   * @param {Grant} grant
   */
  #void(grant) {
    for (const reader of this.#readers) reader.grants.delete(grant);
    return loseGrant(grant);
  }

  /**
   * @param {Session} session
   * @param {string} reason
   */
  #end(session, reason) {
    session.permission.end();
    const isFirst = !session.over.isSet;
    session.over.set();
    for (const key of [...session.grants.keys()]) this.#lose(session, key);
    if (isFirst) {
      this.#error ??= new AgentError("ended", `session ${session.name} has ended: ${reason}`);
      this.#log("info", `session ${session.name} has ended: ${reason}`);
    }
  }

  // Heartbeats

  #mayBeat() {
    try {
      // A promise is no answer.
      return this.#options.isAlive === undefined || this.#options.isAlive() === true;
    } catch (error) {
      this.#log("error", `isAlive failed, so no heartbeat is sent: ${text(error)}`);
      return false;
    }
  }

  async #runHeartbeats() {
    let wait = 50;
    while (!this.#closing.isSet) {
      await this.#beat.wait(wait);
      this.#beat.clear();
      const session = this.#session;
      if (session === undefined || session.over.isSet) {
        wait = 50;
        continue;
      }
      wait = session.heartbeatEveryMs;
      // One answer that does not come leaves time for two more attempts. Each has a connection of its own.
      this.#heartbeats.timeoutMs = Math.min(REQUEST_MS, Math.max(10, session.leaseMs / 3));
      try {
        if (!this.#mayBeat()) continue;
        // Before the request: it may wait for as long as the process is stopped.
        const sent = clock.now();
        const answer = await this.#heartbeats.call("POST", "/v1/heartbeat", session.name, {
          seen: session.permission.received,
        });
        session.permission.extend(sent, integer(answer, "valid_for_ms"), integer(answer, "sequence"));
      } catch (error) {
        if (error instanceof AgentError) {
          wait = Math.min(wait, session.heartbeatEveryMs / 4);
          this.#log("debug", `a heartbeat failed: ${error.message}`);
        } else {
          this.#log("error", `the answer to a heartbeat is not valid: ${text(error)}`);
        }
      }
    }
  }

  // Callbacks

  /**
   * Runs work for a partition after all earlier work for it, and never before the caller has returned.
   *
   * @param {string} key
   * @param {() => Promise<void>} work
   */
  #dispatch(key, work) {
    const queue = this.#work.get(key);
    if (queue !== undefined) {
      queue.push(work);
      return;
    }
    this.#work.set(key, [work]);
    this.#idle.clear();
    this.#ready.add(key);
    this.#fill();
  }

  #fill() {
    for (const key of this.#ready) {
      if (this.#running >= this.#callbacksMax) return;
      this.#ready.delete(key);
      this.#running += 1;
      void this.#runWork(key);
    }
  }

  /** @param {string} key */
  async #runWork(key) {
    await Promise.resolve();
    const queue = this.#work.get(key) ?? [];
    for (let work = queue.shift(); work !== undefined; work = queue.shift()) {
      try {
        await work();
      } catch (error) {
        this.#log("error", `a callback for partition ${key} failed: ${text(error)}`);
      }
    }
    this.#work.delete(key);
    this.#running -= 1;
    if (this.#work.size === 0) this.#idle.set();
    this.#fill();
  }

  /**
   * @param {Session} session
   * @param {Grant} grant
   */
  async #runAcquire(session, grant) {
    if (stateOf(grant).stage !== "acquiring") return;
    stateOf(grant).isHeard = true;
    const { table, partition, epoch } = grant;
    const body = { answer: "acquired", sequence: stateOf(grant).sequence, table, partition, epoch };
    try {
      await this.#options.acquire?.(grant);
    } catch (error) {
      const reason = reasonOf(error);
      this.#log("warning", `partition ${partition} of ${table} is refused: ${reason}`);
      this.#forget(session, grant);
      await this.#answer(session, { ...body, answer: "refused", reason });
      return;
    }
    // A loss or a release may have come meanwhile.
    if ((await this.#answer(session, body)) && stateOf(grant).advance(["acquiring"], "owned")) {
      for (const reader of this.#readers) {
        reader.grants.add(grant);
        reader.changed.set();
      }
    }
    this.#beat.set();
  }

  /**
   * @param {Session} session
   * @param {Grant} grant
   * @param {number} sequence
   * @param {string} reason
   */
  async #runRelease(session, grant, sequence, reason) {
    try {
      if (stateOf(grant).stage === "releasing") await this.#options.release?.(grant, reason);
    } finally {
      // From here on nothing is touched.
      this.#forget(session, grant);
      const { table, partition, epoch } = grant;
      await this.#answer(session, { answer: "released", sequence, table, partition, epoch });
    }
  }

  /** @param {Grant} grant */
  async #runLost(grant) {
    // A service that was not asked to acquire need not hear of the loss.
    if (stateOf(grant).isHeard) await this.#options.lost?.(grant);
  }

  /**
   * @param {Session} session
   * @param {Grant} grant
   */
  #forget(session, grant) {
    const key = keyOf(grant.table, grant.partition);
    this.#void(grant);
    if (session.grants.get(key) === grant) session.grants.delete(key);
  }

  /**
   * Sends an answer, again and again until the agent has it or the session has ended.
   *
   * @param {Session} session
   * @param {Document} body
   * @param {number} [until] Time limit, after which it rejects with an {@link AgentError}.
   * @returns {Promise<boolean>} Whether it was taken.
   */
  async #answer(session, body, until) {
    while (!session.over.isSet && !session.failed.isSet) {
      try {
        const withinMs = until === undefined ? undefined : until - performance.now();
        await this.#answers.call("POST", "/v1/answers", session.name, body, withinMs);
        return true;
      } catch (error) {
        if (!(error instanceof AgentError)) throw error;
        if (error.kind === "stale" || error.kind === "ended") {
          // The partition was lost meanwhile: that event comes or has come.
          this.#log("debug", `an answer was too late: ${error.message}`);
          return false;
        }
        if (until !== undefined && (error.kind !== "unreachable" || performance.now() > until)) throw error;
        if (error.kind !== "unreachable" && error.kind !== "overloaded") {
          // The agent would wait for this answer forever.
          this.#abandon(session, error);
          return false;
        }
      }
      await session.over.wait(RETRY_MS);
    }
    return false;
  }
}
