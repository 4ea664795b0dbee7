/** @typedef {() => Promise<void>} Work */
/** Queues of work, one per partition. */
export class WorkQueues {
    /**
     * @param {number} runningMax Partitions that work at a time.
     * @param {import("./options.js").Log} log
     */
    constructor(runningMax: number, log: import("./options.js").Log);
    /** Set while there is no work. */
    idle: Flag;
    /**
     * Runs work for a partition after all earlier work for it, and never before the caller has returned.
     *
     * @param {string} key
     * @param {Work} work
     */
    dispatch(key: string, work: Work): void;
    #private;
}
export type Work = () => Promise<void>;
import { Flag } from "./flag.js";
