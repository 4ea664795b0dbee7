/**
 * A service's membership in a cluster, through the agent beside it.
 *
 * Callbacks and heartbeats run on the event loop. A loop that is blocked sends no heartbeats, so it loses its partitions; a
 * service that hangs in another way keeps them, unless it gives `isAlive`.
 *
 * If the agent restarts, or the session ends otherwise, everything is lost, and a new session begins by itself. An object is
 * started once.
 */
export class Participant {
    /**
     * @param {string} table
     * @param {Options} [options]
     * @throws {TypeError} If the address of the agent is malformed.
     * @throws {Error} If the credentials cannot be read.
     */
    constructor(table: string, options?: Options);
    /** @readonly */
    readonly table: string;
    /** @readonly */
    readonly agent: string;
    /**
     * Connects to the agent.
     *
     * @returns {Promise<this>}
     * @throws {AgentError} If that takes too long, or the agent serves other tables.
     */
    start(): Promise<this>;
    /**
     * The reason why there is no session now; undefined while there is one, and before the first attempt. The package tries
     * again by itself. A service may report this error in its health check.
     *
     * @returns {Error | undefined}
     */
    get error(): Error | undefined;
    /**
     * Releases everything and disconnects. Resolves at most a second after the time limit, also if a callback does not end.
     *
     * @param {number} [withinMs]
     * @returns {Promise<boolean>} True if everything was released in time.
     */
    stop(withinMs?: number): Promise<boolean>;
    /**
     * Returns the grant of a partition that accepts new work. Call it for each piece of work.
     *
     * @param {number} partition
     * @param {string} [table]
     * @returns {Grant}
     * @throws {NotOwned}
     */
    grant(partition: number, table?: string): Grant;
    /**
     * Returns all grants that accept new work now.
     *
     * @returns {Grant[]}
     */
    owned(): Grant[];
    /**
     * Yields each grant once it is owned, those that are owned now first. Ends when the participant stops.
     *
     * A task for the grant ends once `grant.isReleasing` or `grant.signal.aborted`. `release` waits for that task: the next owner
     * begins after it.
     *
     * @returns {AsyncGenerator<Grant, void, void>}
     */
    acquired(): AsyncGenerator<Grant, void, void>;
    /**
     * Asks the agent for the owner of a key's partition.
     *
     * @param {string | Uint8Array} key
     * @param {string} [table]
     * @returns {Promise<Whereabouts>}
     */
    where(key: string | Uint8Array, table?: string): Promise<Whereabouts>;
    /**
     * Gives a partition up: `release` is called, and then another participant gets it if there is one.
     *
     * @param {Grant} grant
     * @returns {Promise<void>}
     */
    drop(grant: Grant): Promise<void>;
    /**
     * Sets the load that `archon node list` shows.
     *
     * @param {{ bytesStored: number, operationsPerSecond: number }} load
     * @returns {Promise<void>}
     */
    publishLoad({ bytesStored, operationsPerSecond }: {
        bytesStored: number;
        operationsPerSecond: number;
    }): Promise<void>;
    #private;
}
export type Grant = import("./grant.js").Grant;
export type Document = import("./http.js").Document;
export type Whereabouts = import("./http.js").Whereabouts;
export type Level = import("./options.js").Level;
export type Options = import("./options.js").Options;
