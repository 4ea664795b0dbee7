/**
 * Returns the address of an agent.
 *
 * @param {string} agent
 * @returns {Address}
 * @throws {TypeError}
 */
export function parse(agent: string): Address;
/**
 * Credentials of a connection with TLS, as the options of `https` name them.
 *
 * @typedef {Pick<https.RequestOptions, "ca" | "cert" | "key" | "minVersion" | "checkServerIdentity">} Credentials
 */
/**
 * Reads the credentials in a directory with ca.crt, tls.crt and tls.key, as `archon cert participant` writes it. The
 * certificate of the agent must name its host, and be of a participant.
 *
 * @param {string} tlsDir
 * @returns {Credentials}
 */
export function credentials(tlsDir: string): Credentials;
/**
 * Returns a number of a document that is exact.
 *
 * @param {Document} from
 * @param {string} name
 * @returns {number}
 */
export function integer(from: Document, name: string): number;
/**
 * @param {Document} from
 * @param {string} name
 * @returns {string}
 */
export function string(from: Document, name: string): string;
/**
 * Returns the text of a thrown value.
 *
 * @param {unknown} error
 * @returns {string}
 */
export function text(error: unknown): string;
/** Requests one at a time over a connection that is kept open. All requests may be repeated. */
export class Caller {
    /**
     * @param {string} agent
     * @param {number} timeoutMs Time limit of a request.
     * @param {string} [tlsDir] Directory of credentials.
     */
    constructor(agent: string, timeoutMs: number, tlsDir?: string);
    timeoutMs: number;
    /**
     * Sends a request and returns the document of the answer.
     *
     * @param {"GET" | "POST"} method
     * @param {string} path
     * @param {string | undefined} session
     * @param {Document | Document[]} [data]
     * @param {number} [withinMs]
     * @returns {Promise<Document>}
     * @throws {AgentError} If it is refused, or gets no answer in time.
     */
    call(method: "GET" | "POST", path: string, session: string | undefined, data?: Document | Document[], withinMs?: number): Promise<Document>;
    /** Ends the connection and all requests for good. */
    close(): void;
    #private;
}
/** Events of one connection. */
export class Stream {
    /**
     * @param {string} agent
     * @param {string} [tlsDir] Directory of credentials.
     */
    constructor(agent: string, tlsDir?: string);
    /**
     * Connects.
     *
     * @param {string} session
     * @param {number} position Number of the newest event that has arrived.
     * @param {number} timeoutMs
     * @throws {AgentError}
     */
    open(session: string, position: number, timeoutMs: number): Promise<void>;
    /**
     * Yields events until the connection ends.
     *
     * @returns {AsyncGenerator<Document, void, void>}
     */
    events(): AsyncGenerator<Document, void, void>;
    /** Ends the connection: the reader finds its end. */
    shut(): void;
    #private;
}
/**
 * Credentials of a connection with TLS, as the options of `https` name them.
 */
export type Credentials = Pick<https.RequestOptions, "ca" | "cert" | "key" | "minVersion" | "checkServerIdentity">;
export type Document = Record<string, unknown>;
export type Address = {
    socketPath: string;
} | {
    host: string;
    port: number;
};
/**
 * Owner of a partition, as the coordinators report it. It may have changed since.
 */
export type Owner = {
    participant: string;
    address: string;
    epoch: number;
    serves: boolean;
};
/**
 * Partition of a key, and its owner if it has one.
 */
export type Whereabouts = {
    table: string;
    partition: number;
    owner: Owner | undefined;
};
import https from "node:https";
