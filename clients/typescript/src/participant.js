/** The participant: it reads events, sends heartbeats, and runs callbacks. */

import { performance } from "node:perf_hooks";

import { Answers } from "./answers.js";
import { Callbacks } from "./callbacks.js";
import { left } from "./clock.js";
import { AgentError, NotOwned } from "./errors.js";
import { Flag } from "./flag.js";
import { stateOf } from "./grant.js";
import { Heartbeats } from "./heartbeats.js";
import { Caller, credentials, parse, Stream, text } from "./http.js";
import { Lookup } from "./lookup.js";
import { logToConsole } from "./options.js";
import { Readers } from "./readers.js";
import { keyOf, Session } from "./session.js";

/** @typedef {import("./grant.js").Grant} Grant */
/** @typedef {import("./http.js").Document} Document */
/** @typedef {import("./http.js").Whereabouts} Whereabouts */
/** @typedef {import("./options.js").Level} Level */
/** @typedef {import("./options.js").Options} Options */

/** Milliseconds between attempts to reach the agent. */
const RETRY_MS = 100;
/** Time limit of one request. */
const REQUEST_MS = 5000;

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
  #answers;
  #callbacks;
  #lookup;
  #heartbeats;
  #isStarted = false;
  /** @type {Promise<unknown>} */
  #loops = Promise.resolve();
  #connected = new Flag();
  #stopping = new Flag();
  #closing = new Flag();
  /** @type {Session | undefined} */
  #session;
  /** @type {Stream | undefined} */
  #stream;
  /** @type {Error | undefined} */
  #error;
  #readers = new Readers();

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
    const log = this.#log.bind(this);
    const caller = () => new Caller(this.agent, REQUEST_MS, this.#tlsDir);
    this.#heartbeats = new Heartbeats(caller(), options.isAlive, log);
    this.#answers = new Answers(caller(), log, (session, error) => this.#abandon(session, error));
    this.#callbacks = new Callbacks(options, this.#answers, this.#readers, this.#heartbeats.due, log);
    this.#lookup = new Lookup(caller());
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
    this.#loops = Promise.all([this.#runSessions(), this.#heartbeats.run(this.#closing, () => this.#session)]);
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
   * @returns {Promise<boolean>} True if everything was released in time.
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
        await this.#answers.send(session, { answer: "stop" }, Math.min(deadline, now + 1000));
        const isOver = await session.over.wait(deadline - performance.now());
        isReleased = isOver && !session.failed.isSet;
        if (!isOver) this.#log("warning", `the stop ends after ${withinMs} ms without ${session.unreleased()}`);
      } catch (error) {
        this.#log("warning", `the stop did not reach the agent: ${text(error)}`);
      }
    }
    await this.#close(Math.max(deadline, performance.now() + 500));
    return isReleased;
  }

  /** @param {number} deadline */
  async #close(deadline) {
    for (const flag of [this.#stopping, this.#connected, this.#closing, this.#heartbeats.due]) flag.set();
    this.#stream?.shut();
    this.#heartbeats.close();
    if (this.#session !== undefined) this.#end(this.#session, "the participant has stopped");
    this.#answers.close();
    this.#lookup.close();
    this.#readers.wake();
    const ended = new Flag();
    void this.#loops.then(() => ended.set());
    await ended.wait(deadline - performance.now());
    // Callbacks that are in progress. They may have called `stop`, so there is a time limit.
    await this.#callbacks.idle.wait(deadline - performance.now());
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
    const grant = this.#session?.grants.get(keyOf({ table, partition }));
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
  acquired() {
    const present = () => [...(this.#session?.grants.values() ?? [])].filter((grant) => stateOf(grant).stage === "owned");
    return this.#readers.read(present, this.#closing);
  }

  /**
   * Asks the agent for the owner of a key's partition.
   *
   * @param {string | Uint8Array} key
   * @param {string} [table]
   * @returns {Promise<Whereabouts>}
   */
  async where(key, table = this.table) {
    return this.#lookup.where(key, table);
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
      await this.#answers.post(session, { answer: "drop", table, partition, epoch });
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
      await this.#answers.post(session, body);
    }
  }

  // Events

  async #runSessions() {
    while (!this.#stopping.isSet) {
      let wait = RETRY_MS;
      try {
        // A session without heartbeats would end at once.
        if (this.#heartbeats.mayBeat()) await this.#runSession();
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
            else {
              const reason = session?.take(event);
              if (session !== undefined && reason !== undefined) this.#end(session, reason);
            }
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
    // After its end, error and stream are of the next session.
    if (this.#session !== session || session.over.isSet) return;
    this.#error = error;
    this.#stream?.shut();
  }

  /** @param {Document} hello */
  #begin(hello) {
    if (hello["version"] !== 1) {
      throw new AgentError("invalid", `the agent speaks version ${hello["version"]} of the protocol, not 1`);
    }
    const session = new Session(hello, this.#callbacks);
    if (!session.tables.includes(this.table)) {
      throw new AgentError("not_found", `the agent serves ${session.tables.join(", ")}, not ${this.table}`);
    }
    this.#session = session;
    this.#error = undefined;
    this.#connected.set();
    this.#heartbeats.due.set();
    return session;
  }

  /**
   * @param {Session} session
   * @param {string} reason
   */
  #end(session, reason) {
    if (session.end()) {
      this.#error ??= new AgentError("ended", `session ${session.name} has ended: ${reason}`);
      this.#log("info", `session ${session.name} has ended: ${reason}`);
    }
  }
}
