/** A condition that can be awaited with a time limit. */

/** Longest time of a timer of Node. */
const TIMER_MS_MAX = 2 ** 31 - 1;

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
   * @returns {Promise<boolean>} Whether it is set.
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
