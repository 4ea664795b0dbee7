/** Work of partitions: in order for one partition, a bounded number at a time for several. */

import { Flag } from "./flag.js";
import { text } from "./http.js";

/** @typedef {() => Promise<void>} Work */

/** Queues of work, one per partition. */
export class WorkQueues {
  #runningMax;
  #log;
  /** Work of each partition, in its order. @type {Map<string, Work[]>} */
  #queues = new Map();
  /** Partitions with work that has not begun. @type {Set<string>} */
  #ready = new Set();
  #running = 0;

  /** Set while there is no work. */
  idle = new Flag();

  /**
   * @param {number} runningMax Partitions that work at a time.
   * @param {import("./options.js").Log} log
   */
  constructor(runningMax, log) {
    this.#runningMax = runningMax;
    this.#log = log;
    this.idle.set();
  }

  /**
   * Runs work for a partition after all earlier work for it, and never before the caller has returned.
   *
   * @param {string} key
   * @param {Work} work
   */
  dispatch(key, work) {
    const queue = this.#queues.get(key);
    if (queue !== undefined) {
      queue.push(work);
      return;
    }
    this.#queues.set(key, [work]);
    this.idle.clear();
    this.#ready.add(key);
    this.#fill();
  }

  #fill() {
    for (const key of this.#ready) {
      if (this.#running >= this.#runningMax) return;
      this.#ready.delete(key);
      this.#running += 1;
      void this.#run(key);
    }
  }

  /** @param {string} key */
  async #run(key) {
    await Promise.resolve();
    const queue = this.#queues.get(key) ?? [];
    for (let work = queue.shift(); work !== undefined; work = queue.shift()) {
      try {
        await work();
      } catch (error) {
        this.#log("error", `a callback for partition ${key} failed: ${text(error)}`);
      }
    }
    this.#queues.delete(key);
    this.#running -= 1;
    if (this.#queues.size === 0) this.idle.set();
    this.#fill();
  }
}
