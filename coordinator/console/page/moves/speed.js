// Copy rate from the last samples, and the remaining time.

/** Largest age of a sample. */
const WINDOW_MS = 20_000;
const SAMPLES_MAX = 24;

export class Speed {
  #samples = [];

  /** Adds a sample: bytes copied by a time. Fewer bytes than before mean that another copy began. */
  add(atMs, done) {
    const last = this.#samples.at(-1);
    if (last && done < last.done) this.#samples = [];
    this.#samples.push({ atMs, done });
    while (this.#samples.length > SAMPLES_MAX || (this.#samples.length > 2 && this.#samples[0].atMs < atMs - WINDOW_MS)) this.#samples.shift();
  }

  /** Bytes per second; null before the second sample. */
  get perSecond() {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (!first || last.atMs <= first.atMs) return null;
    return ((last.done - first.done) / (last.atMs - first.atMs)) * 1_000;
  }

  /** Milliseconds until the copy is complete; null if unknown. */
  leftMs(total) {
    const rate = this.perSecond;
    const left = total - (this.#samples.at(-1)?.done ?? 0);
    return rate > 0 && left > 0 ? (left / rate) * 1_000 : null;
  }
}
