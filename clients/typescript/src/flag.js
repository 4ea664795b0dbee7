/** Flags. */

/** Longest time of a timer of Node, in milliseconds. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** A flag that callers can wait for, with a time limit. */
export class Flag {
  #isSet = false;
  /** @type {Set<() => void>} */
  #waiting = new Set();

  get isSet() {
    return this.#isSet;
  }

  set() {
    this.#isSet = true;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  clear() {
    this.#isSet = false;
  }

  /**
   * Waits until the flag is set, at most for `milliseconds`.
   *
   * @param {number} milliseconds
   * @returns {Promise<boolean>} True if it is set, false after a time-out.
   */
  wait(milliseconds) {
    if (this.#isSet) return Promise.resolve(true);
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve(this.#isSet);
      };
      const timer = setTimeout(wake, Math.min(TIMER_MS_MAX, Math.max(0, milliseconds)));
      this.#waiting.add(wake);
    });
  }
}
