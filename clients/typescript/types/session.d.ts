/** @typedef {import("./grant.js").Grant} Grant */
/** @typedef {import("./http.js").Document} Document */
/**
 * Returns the key of a partition, also for messages.
 *
 * @param {{ table: string, partition: number }} partition
 */
export function keyOf({ table, partition }: {
    table: string;
    partition: number;
}): string;
/** One session with the agent. */
export class Session {
    /**
     * @param {Document} hello
     * @param {import("./callbacks.js").Callbacks} callbacks
     */
    constructor(hello: Document, callbacks: import("./callbacks.js").Callbacks);
    permission: Permission;
    /** @type {Map<string, Grant>} */
    grants: Map<string, Grant>;
    over: Flag;
    /** Set once this side gives the session up: the agent refuses it. */
    failed: Flag;
    name: string;
    tables: string[];
    leaseMs: number;
    heartbeatEveryMs: number;
    /** Describes what a stop waits for. */
    unreleased(): string;
    /**
     * Applies an event at once; callbacks run later. An unknown event is from a newer agent, and has no effect.
     *
     * @param {Document} event
     * @returns {string | undefined} The reason, if the event ends the session.
     */
    take(event: Document): string | undefined;
    /**
     * Ends the session: its grants are lost.
     *
     * @returns {boolean} True if it had not ended before.
     */
    end(): boolean;
    #private;
}
export type Grant = import("./grant.js").Grant;
export type Document = import("./http.js").Document;
import { Permission } from "./grant.js";
import { Flag } from "./flag.js";
