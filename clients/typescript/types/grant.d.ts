/**
 * Makes a grant void for good. Returns whether it was not before.
 *
 * @param {Grant} grant
 * @returns {boolean}
 */
export function loseGrant(grant: Grant): boolean;
/**
 * The time until which the service may act.
 *
 * An answer to a heartbeat counts from the moment when the heartbeat was sent, and only once all events that the agent had
 * sent by then have arrived: a loss may be among them.
 */
export class Permission {
    until: import("./clock.js").Instant;
    /** Number of the newest event that has arrived. */
    get received(): number;
    /** True once the permission has ended for good. */
    get isEnded(): boolean;
    /**
     * Handles the arrival of an event, whose effect on the grants has been applied.
     *
     * @param {number} sequence
     */
    receive(sequence: number): void;
    /**
     * Handles an answer to a heartbeat.
     *
     * @param {import("./clock.js").Instant} sent When the heartbeat was sent.
     * @param {number} validForMs
     * @param {number} sequence
     */
    extend(sent: import("./clock.js").Instant, validForMs: number, sequence: number): void;
    /** Ends the permission for good. */
    end(): void;
    #private;
}
/** Creates a grant. @type {(event: AcquireEvent, permission: Permission) => Grant} */
export let createGrant: (event: AcquireEvent, permission: Permission) => Grant;
/** Returns the part of a grant that only the participant changes. @type {(grant: Grant) => State} */
export let stateOf: (grant: Grant) => State;
/** @typedef {{ table: string, tableId: number, partition: number, epoch: number, sequence: number }} AcquireEvent */
/**
 * The right to act for a partition. Call {@link Grant.check} right before each use.
 *
 * The epoch is the fencing token: storage that keeps the highest epoch per `tableId` and `partition`, and refuses lower
 * ones, is protected from a former owner.
 */
export class Grant {
    /**
     * @private
     * @param {AcquireEvent} event
     * @param {Permission} permission
     */
    private constructor();
    /** @readonly */
    readonly table: string;
    /** @readonly */
    readonly tableId: number;
    /** @readonly */
    readonly partition: number;
    /** @readonly */
    readonly epoch: number;
    /**
     * Aborted once the grant is lost or released, with {@link Lost} as its reason. The permission may end before that event
     * arrives, so the signal ends waiting work, and does not replace {@link Grant.check}.
     *
     * @returns {AbortSignal}
     */
    get signal(): AbortSignal;
    /**
     * True from `release` on: finish what is in progress, and begin no new work. The partition is still owned until `release` has
     * ended.
     *
     * @returns {boolean}
     */
    get isReleasing(): boolean;
    /**
     * Returns the epoch if the partition is owned now. Does not wait.
     *
     * @throws {Lost} If it is not, also before `acquire` has returned.
     * @returns {number}
     */
    check(): number;
    /**
     * Returns the milliseconds for which the partition is owned unless a heartbeat extends them; 0 if it is not.
     *
     * @returns {number}
     */
    validForMs(): number;
    #private;
}
export type Stage = "acquiring" | "owned" | "releasing" | "lost";
export type AcquireEvent = {
    table: string;
    tableId: number;
    partition: number;
    epoch: number;
    sequence: number;
};
/** The part of a grant that the participant changes. */
declare class State {
    /**
     * @param {Permission} permission
     * @param {number} sequence Number of the event `acquire`.
     */
    constructor(permission: Permission, sequence: number);
    /** @type {Stage} */
    stage: Stage;
    /** Set once the service was asked to acquire it. */
    isHeard: boolean;
    controller: AbortController;
    permission: Permission;
    sequence: number;
    /**
     * Sets the stage if the present one is allowed. The only place that sets it: `lost` is final.
     *
     * @param {readonly Stage[]} allowed
     * @param {Stage} stage
     * @returns {boolean}
     */
    advance(allowed: readonly Stage[], stage: Stage): boolean;
}
export {};
