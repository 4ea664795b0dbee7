/** @typedef {import("./grant.js").Grant} Grant */
/** Readers, each with the owned grants that it has not seen. */
export class Readers {
    /** @param {Grant} grant */
    add(grant: Grant): void;
    /** @param {Grant} grant */
    remove(grant: Grant): void;
    /** Wakes all readers, so that they notice the end. */
    wake(): void;
    /**
     * Yields the present grants, and each later one, until `closing` is set.
     *
     * @param {() => Grant[]} present Returns the grants that are owned once the reader begins.
     * @param {Flag} closing
     * @returns {AsyncGenerator<Grant, void, void>}
     */
    read(present: () => Grant[], closing: Flag): AsyncGenerator<Grant, void, void>;
    #private;
}
export type Grant = import("./grant.js").Grant;
import { Flag } from "./flag.js";
