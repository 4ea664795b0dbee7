/** Callbacks of the service, and the answers that follow them. */

import { loseGrant, stateOf } from "./grant.js";
import { text } from "./http.js";
import { keyOf } from "./session.js";
import { WorkQueues } from "./work_queues.js";

/** @typedef {import("./grant.js").Grant} Grant */
/** @typedef {import("./session.js").Session} Session */

/** Longest reason of a refusal, in bytes of UTF-8. The agent takes a body of 64 KiB. */
const REASON_BYTES_MAX = 1024;

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

/** Runner of callbacks: one after the other for each partition. */
export class Callbacks {
  #options;
  #answers;
  #readers;
  #beat;
  #log;
  #queues;

  /**
   * @param {import("./options.js").Options} options
   * @param {import("./answers.js").Answers} answers
   * @param {import("./readers.js").Readers} readers
   * @param {import("./flag.js").Flag} beat Makes the next heartbeat due.
   * @param {import("./options.js").Log} log
   */
  constructor(options, answers, readers, beat, log) {
    this.#options = options;
    this.#answers = answers;
    this.#readers = readers;
    this.#beat = beat;
    this.#log = log;
    this.#queues = new WorkQueues(Math.max(1, options.callbacksMax ?? 64), log);
  }

  /** Set while no callback is in progress or waits. */
  get idle() {
    return this.#queues.idle;
  }

  /**
   * @param {Session} session
   * @param {Grant} grant
   */
  acquire(session, grant) {
    this.#queues.dispatch(keyOf(grant), () => this.#runAcquire(session, grant));
  }

  /**
   * @param {Session} session
   * @param {Grant} grant
   * @param {number} sequence
   * @param {string} reason
   */
  release(session, grant, sequence, reason) {
    this.#queues.dispatch(keyOf(grant), () => this.#runRelease(session, grant, sequence, reason));
  }

  /**
   * Makes a grant void for good. After `released` there is nothing to lose.
   *
   * @param {Grant} grant
   */
  lose(grant) {
    if (this.#void(grant)) this.#queues.dispatch(keyOf(grant), () => this.#runLost(grant));
  }

  /**
   * Makes a grant void for good. Returns whether it was not before.
   *
   * @param {Grant} grant
   */
  #void(grant) {
    this.#readers.remove(grant);
    return loseGrant(grant);
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
      await this.#answers.send(session, { ...body, answer: "refused", reason });
      return;
    }
    // A loss or a release may have come meanwhile.
    if ((await this.#answers.send(session, body)) && stateOf(grant).advance(["acquiring"], "owned")) {
      this.#readers.add(grant);
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
      await this.#answers.send(session, { answer: "released", sequence, table, partition, epoch });
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
    const key = keyOf(grant);
    this.#void(grant);
    if (session.grants.get(key) === grant) session.grants.delete(key);
  }
}
