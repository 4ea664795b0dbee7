/** Options of a participant. */
/** @typedef {import("./grant.js").Grant} Grant */
/** @typedef {"debug" | "info" | "warning" | "error"} Level */
/** @typedef {(level: Level, message: string) => void} Log */
/**
 * `acquire` prepares to own a partition: it writes `grant.epoch` to storage first, then loads. An exception refuses the
 * partition. `release` finishes the work for a partition that is still owned. `lost` discards what is in memory: another
 * process may own the partition. For one partition they run one after the other; all are optional.
 *
 * @typedef {object} Options
 * @property {string} [agent] `HOST:PORT` or `unix:/path` of the agent; `127.0.0.1:7700` by default.
 * @property {string} [tlsDir] Directory with `ca.crt`, `tls.crt` and `tls.key` of the same participant
 *   (`archon cert participant`), for an agent on another machine. The files are read again after 10 s, so they can be renewed.
 * @property {(grant: Grant) => Promise<void> | void} [acquire]
 * @property {(grant: Grant, reason: string) => Promise<void> | void} [release]
 * @property {(grant: Grant) => Promise<void> | void} [lost]
 * @property {() => boolean} [isAlive] Called before each heartbeat. While it throws or returns anything but true, no heartbeat is sent:
 *   the permission ends, and others get the partitions.
 * @property {number} [callbacksMax] Callbacks that run at a time, of different partitions; 64 by default.
 * @property {number} [startWithinMs] Time limit of `start`; 30 s by default.
 * @property {number} [stopWithinMs] Time limit of `stop`; 10 s by default.
 * @property {Log} [log] By default, warnings and errors go to `console.error`.
 */
/**
 * Writes warnings and errors to the console.
 *
 * @param {Level} level
 * @param {string} message
 */
export function logToConsole(level: Level, message: string): void;
export type Grant = import("./grant.js").Grant;
export type Level = "debug" | "info" | "warning" | "error";
export type Log = (level: Level, message: string) => void;
/**
 * `acquire` prepares to own a partition: it writes `grant.epoch` to storage first, then loads. An exception refuses the
 * partition. `release` finishes the work for a partition that is still owned. `lost` discards what is in memory: another
 * process may own the partition. For one partition they run one after the other; all are optional.
 */
export type Options = {
    /**
     * `HOST:PORT` or `unix:/path` of the agent; `127.0.0.1:7700` by default.
     */
    agent?: string | undefined;
    /**
     * Directory with `ca.crt`, `tls.crt` and `tls.key` of the same participant
     * (`archon cert participant`), for an agent on another machine. The files are read again after 10 s, so they can be renewed.
     */
    tlsDir?: string | undefined;
    acquire?: ((grant: Grant) => Promise<void> | void) | undefined;
    release?: ((grant: Grant, reason: string) => Promise<void> | void) | undefined;
    lost?: ((grant: Grant) => Promise<void> | void) | undefined;
    /**
     * Called before each heartbeat. While it throws or returns anything but true, no heartbeat is sent:
     * the permission ends, and others get the partitions.
     */
    isAlive?: (() => boolean) | undefined;
    /**
     * Callbacks that run at a time, of different partitions; 64 by default.
     */
    callbacksMax?: number | undefined;
    /**
     * Time limit of `start`; 30 s by default.
     */
    startWithinMs?: number | undefined;
    /**
     * Time limit of `stop`; 10 s by default.
     */
    stopWithinMs?: number | undefined;
    /**
     * By default, warnings and errors go to `console.error`.
     */
    log?: Log | undefined;
};
