/** Answers of the participant to the events of the agent. */

import { performance } from "node:perf_hooks";

import { AgentError } from "./errors.js";

/** @typedef {import("./http.js").Document} Document */
/** @typedef {import("./session.js").Session} Session */

/** Milliseconds between attempts to send an answer. */
const RETRY_MS = 100;

/** Sends the service's answers to the agent. */
export class Answers {
  #caller;
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
    await this.#caller.call("POST", "/v1/answers", session.name, body, withinMs);
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
