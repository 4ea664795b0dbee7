/** Sends the service's heartbeats to the agent. */
export class Heartbeats {
    /**
     * @param {import("./http.js").Caller} caller
     * @param {(() => boolean) | undefined} isAlive
     * @param {import("./options.js").Log} log
     */
    constructor(caller: import("./http.js").Caller, isAlive: (() => boolean) | undefined, log: import("./options.js").Log);
    /** Set to send one at once. */
    due: Flag;
    /** Returns whether the service says that it is alive. */
    mayBeat(): boolean;
    /**
     * Sends heartbeats until `closing` is set.
     *
     * @param {Flag} closing
     * @param {() => Session | undefined} current Returns the present session.
     */
    run(closing: Flag, current: () => Session | undefined): Promise<void>;
    /** Ends the request in progress. */
    close(): void;
    #private;
}
export type Session = import("./session.js").Session;
import { Flag } from "./flag.js";
