/** Readers of the grants that a participant acquires. */

import { Flag } from "./flag.js";

/** @typedef {import("./grant.js").Grant} Grant */

/** Readers, each with the owned grants that it has not seen. */
export class Readers {
  /** @type {Set<{ grants: Set<Grant>, changed: Flag }>} */
  #readers = new Set();

  /** @param {Grant} grant */
  add(grant) {
    for (const reader of this.#readers) {
      reader.grants.add(grant);
      reader.changed.set();
    }
  }

  /** @param {Grant} grant */
  remove(grant) {
    for (const reader of this.#readers) reader.grants.delete(grant);
  }

  /** Wakes all readers, so that they notice the end. */
  wake() {
    for (const reader of this.#readers) reader.changed.set();
  }

  /**
   * Yields the present grants, and each later one, until `closing` is set.
   *
   * @param {() => Grant[]} present Returns the grants that are owned once the reader begins.
   * @param {Flag} closing
   * @returns {AsyncGenerator<Grant, void, void>}
   */
  async *read(present, closing) {
    const reader = { grants: new Set(present()), changed: new Flag() };
    this.#readers.add(reader);
    try {
      while (!closing.isSet) {
        for (const grant of reader.grants) {
          reader.grants.delete(grant);
          yield grant;
        }
        // Set while the caller worked, perhaps.
        if (reader.grants.size === 0) await reader.changed.wait(Infinity);
        reader.changed.clear();
      }
    } finally {
      this.#readers.delete(reader);
    }
  }
}
