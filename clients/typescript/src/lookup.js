/** Owners of keys. */

import { integer, string } from "./http.js";

/** @typedef {import("./http.js").Document} Document */
/** @typedef {import("./http.js").Whereabouts} Whereabouts */

/**
 * Percent-encodes a text or bytes.
 *
 * @param {string | Uint8Array} key
 */
function quote(key) {
  const encode = (/** @type {number} */ byte) => {
    const character = String.fromCharCode(byte);
    return /[\w.~-]/.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  };
  return Array.from(typeof key === "string" ? Buffer.from(key, "utf8") : key, encode).join("");
}

/** Looks up the owners of keys. */
export class Lookup {
  #caller;

  /** @param {import("./http.js").Caller} caller */
  constructor(caller) {
    this.#caller = caller;
  }

  /**
   * Asks the agent for the owner of a key's partition.
   *
   * @param {string | Uint8Array} key
   * @param {string} table
   * @returns {Promise<Whereabouts>}
   */
  async where(key, table) {
    const found = await this.#caller.call("GET", `/v1/where/${quote(key)}?table=${quote(table)}`, undefined);
    const owner = /** @type {Document | null | undefined} */ (found["owner"]);
    const known = owner && {
      participant: string(owner, "participant"),
      address: string(owner, "address"),
      epoch: integer(owner, "epoch"),
      serves: owner["serves"] === true,
    };
    return { table: string(found, "table"), partition: integer(found, "partition"), owner: known || undefined };
  }

  /** Closes the connections. */
  close() {
    this.#caller.close();
  }
}
