/** Looks up the owners of keys. */
export class Lookup {
    /** @param {import("./http.js").Caller} caller */
    constructor(caller: import("./http.js").Caller);
    /**
     * Asks the agent for the owner of a key's partition.
     *
     * @param {string | Uint8Array} key
     * @param {string} table
     * @returns {Promise<Whereabouts>}
     */
    where(key: string | Uint8Array, table: string): Promise<Whereabouts>;
    /** Closes the connections. */
    close(): void;
    #private;
}
export type Document = import("./http.js").Document;
export type Whereabouts = import("./http.js").Whereabouts;
