/** Answers of the participant to the events of the agent. */

import { performance } from "node:perf_hooks";

import { AgentError } from "./errors.js";

/** @typedef {import("./http.js").Document} Document */
/** @typedef {import("./session.js").Session} Session */

/** Milliseconds between attempts to send an answer. */
const RETRY_MS = 100;
/** Most bytes of answers in one request. The agent takes a body of 64 KiB. */
const REQUEST_BYTES_MAX = 32 * 1024;

/** @typedef {{ session: string, body: Document, resolve: () => void, reject: (error: AgentError) => void }} Unsent */

/** Sends the service's answers to the agent. Those that gather while a request is on its way are sent by the next one. */
export class Answers {
  #caller;
  /** @type {Unsent[]} */
  #unsent = [];
  #isSending = false;
  #log;
  #abandon;

  /**
   * @param {import("./http.js").Caller} caller
   * @param {import("./options.js").Log} log
   * @param {(session: Session, error: Error) => void} abandon Gives up a session whose agent refuses an answer.
   */
  constructor(caller, log, abandon) {
    this.#caller = caller;
    this.#log = log;
    this.#abandon = abandon;
  }

  /**
   * Sends an answer once.
   *
   * @param {Session} session
   * @param {Document} body
   * @param {number} [withinMs]
   */
  async post(session, body, withinMs) {
    if (withinMs !== undefined) {
      await this.#caller.call("POST", "/v1/answers", session.name, body, withinMs);
      return;
    }
    /** @type {Promise<void>} */
    const sent = new Promise((resolve, reject) => {
      this.#unsent.push({ session: session.name, body, resolve, reject });
    });
    void this.#sendUnsent();
    await sent;
  }

  async #sendUnsent() {
    if (this.#isSending) return;
    this.#isSending = true;
    // Callbacks that end at the same time add their answers first.
    await Promise.resolve();
    while (this.#unsent.length > 0) await this.#sendList(this.#takeUnsent());
    this.#isSending = false;
  }

  /** Takes the oldest answers of one session that fit into a request. */
  #takeUnsent() {
    let count = 0;
    let bytes = 0;
    for (const { session, body } of this.#unsent) {
      bytes += Buffer.byteLength(JSON.stringify(body)) + 1;
      if (count > 0 && (bytes > REQUEST_BYTES_MAX || session !== this.#unsent[0]?.session)) break;
      count += 1;
    }
    return this.#unsent.splice(0, count);
  }

  /** @param {Unsent[]} answers Answers of one session. */
  async #sendList(answers) {
    const session = answers[0]?.session;
    const list = answers.map(({ body }) => body);
    try {
      const outcome = await this.#caller.call("POST", "/v1/answers", session, list);
      const refused = /** @type {{ index: number, error: { kind: string, message: string } }[]} */ (outcome.refused ?? []);
      for (const { index, error } of refused) {
        const answer = answers[index];
        if (answer === undefined) throw new RangeError(`there is no answer ${index}`);
        answer.reject(new AgentError(error.kind, error.message));
      }
      // No effect on those that were rejected.
      for (const { resolve } of answers) resolve();
    } catch (error) {
      const why = "the outcome of answers is malformed";
      const failure = error instanceof AgentError ? error : new AgentError("unreachable", why, { cause: error });
      for (const { reject } of answers) reject(failure);
    }
  }

  /**
   * Sends an answer repeatedly until the agent has it or the session has ended.
   *
   * @param {Session} session
   * @param {Document} body
   * @param {number} [until] Time limit, after which it rejects with an {@link AgentError}.
   * @returns {Promise<boolean>} True if the agent has it, false if it came too late.
   */
  async send(session, body, until) {
    while (!session.over.isSet && !session.failed.isSet) {
      try {
        await this.post(session, body, until === undefined ? undefined : until - performance.now());
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

  /** Closes the connections. No answer has an effect after the end of the session. */
  close() {
    this.#caller.close();
  }
}
