/** Errors. */
/** The agent refused a request, or did not answer. */
export class AgentError extends Error {
    /**
     * @param {string} kind
     * @param {string} message
     * @param {ErrorOptions} [options]
     */
    constructor(kind: string, message: string, options?: ErrorOptions);
    /** A kind of docs/reference/agent.md, or `unreachable`. */
    kind: string;
}
/** The partition accepts no new work here: another process may own it. */
export class NotOwned extends Error {
    /** @param {string} message */
    constructor(message: string);
}
/** The grant is not valid now: stop acting for the partition. */
export class Lost extends Error {
    /** @param {string} message */
    constructor(message: string);
}
