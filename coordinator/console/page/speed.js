// How fast bytes are copied, from the last few pictures, and so how long the rest takes.

/** Pictures older than this do not tell how fast it goes now. */
const WINDOW_MS = 20_000;
const SAMPLES_MAX = 24;

export class Speed {
  #samples = [];

  /** So many bytes were done at this time. Fewer than before: another copy began. */
  add(atMs, done) {
    const last = this.#samples.at(-1);
    if (last && done < last.done) this.#samples = [];
    this.#samples.push({ atMs, done });
    while (this.#samples.length > SAMPLES_MAX || (this.#samples.length > 2 && this.#samples[0].atMs < atMs - WINDOW_MS)) this.#samples.shift();
  }

  /** Bytes per second; null until two pictures tell. */
  get perSecond() {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (!first || last.atMs <= first.atMs) return null;
    return ((last.done - first.done) / (last.atMs - first.atMs)) * 1_000;
  }

  /** Milliseconds until all is done; null if nobody can tell. */
  leftMs(total) {
    const rate = this.perSecond;
    const left = total - (this.#samples.at(-1)?.done ?? 0);
    return rate > 0 && left > 0 ? (left / rate) * 1_000 : null;
  }
}
