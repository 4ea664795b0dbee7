/** Heartbeats, which extend the permission of a session. */

import { clock } from "./clock.js";
import { AgentError } from "./errors.js";
import { Flag } from "./flag.js";
import { integer, text } from "./http.js";

/** @typedef {import("./session.js").Session} Session */

/** Milliseconds between looks for a session while there is none. */
const LOOK_MS = 50;

/** Sends the service's heartbeats to the agent. */
export class Heartbeats {
  #caller;
  #isAlive;
  #log;
  #timeoutMsMax;

  /** Set to send one at once. */
  due = new Flag();

  /**
   * @param {import("./http.js").Caller} caller
   * @param {(() => boolean) | undefined} isAlive
   * @param {import("./options.js").Log} log
   */
  constructor(caller, isAlive, log) {
    this.#caller = caller;
    this.#isAlive = isAlive;
    this.#log = log;
    this.#timeoutMsMax = caller.timeoutMs;
  }

  /** Returns whether the service says that it is alive. */
  mayBeat() {
    try {
      // A promise is no answer.
      return this.#isAlive === undefined || this.#isAlive() === true;
    } catch (error) {
      this.#log("error", `isAlive failed, so no heartbeat is sent: ${text(error)}`);
      return false;
    }
  }

  /**
   * Sends heartbeats until `closing` is set.
   *
   * @param {Flag} closing
   * @param {() => Session | undefined} current Returns the present session.
   */
  async run(closing, current) {
    let wait = LOOK_MS;
    while (!closing.isSet) {
      await this.due.wait(wait);
      this.due.clear();
      const session = current();
      if (session === undefined || session.over.isSet) {
        wait = LOOK_MS;
        continue;
      }
      wait = session.heartbeatEveryMs;
      // One answer that does not come leaves time for two more attempts. Each has a connection of its own.
      this.#caller.timeoutMs = Math.min(this.#timeoutMsMax, Math.max(10, session.leaseMs / 3));
      try {
        if (!this.mayBeat()) continue;
        // Before the request: it may wait for as long as the process is stopped.
        const sent = clock.now();
        const answer = await this.#caller.call("POST", "/v1/heartbeat", session.name, {
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

  /** Ends the request in progress. */
  close() {
    this.#caller.close();
  }
}
