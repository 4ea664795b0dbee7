/** @typedef {{ session: string, body: Document, resolve: () => void, reject: (error: AgentError) => void }} Unsent */
/** Sends the service's answers to the agent. Those that gather while a request is on its way are sent by the next one. */
export class Answers {
    /**
     * @param {import("./http.js").Caller} caller
     * @param {import("./options.js").Log} log
     * @param {(session: Session, error: Error) => void} abandon Gives up a session whose agent refuses an answer.
     */
    constructor(caller: import("./http.js").Caller, log: import("./options.js").Log, abandon: (session: Session, error: Error) => void);
    /**
     * Sends an answer once.
     *
     * @param {Session} session
     * @param {Document} body
     * @param {number} [withinMs]
     */
    post(session: Session, body: Document, withinMs?: number): Promise<void>;
    /**
     * Sends an answer repeatedly until the agent has it or the session has ended.
     *
     * @param {Session} session
     * @param {Document} body
     * @param {number} [until] Time limit, after which it rejects with an {@link AgentError}.
     * @returns {Promise<boolean>} True if the agent has it, false if it came too late.
     */
    send(session: Session, body: Document, until?: number): Promise<boolean>;
    /** Closes the connections. No answer has an effect after the end of the session. */
    close(): void;
    #private;
}
export type Document = import("./http.js").Document;
export type Session = import("./session.js").Session;
export type Unsent = {
    session: string;
    body: Document;
    resolve: () => void;
    reject: (error: AgentError) => void;
};
import { AgentError } from "./errors.js";
