/** Runner of callbacks: one after the other for each partition. */
export class Callbacks {
    /**
     * @param {import("./options.js").Options} options
     * @param {import("./answers.js").Answers} answers
     * @param {import("./readers.js").Readers} readers
     * @param {import("./flag.js").Flag} beat Makes the next heartbeat due.
     * @param {import("./options.js").Log} log
     */
    constructor(options: import("./options.js").Options, answers: import("./answers.js").Answers, readers: import("./readers.js").Readers, beat: import("./flag.js").Flag, log: import("./options.js").Log);
    /** Set while no callback is in progress or waits. */
    get idle(): import("./flag.js").Flag;
    /**
     * @param {Session} session
     * @param {Grant} grant
     */
    acquire(session: Session, grant: Grant): void;
    /**
     * @param {Session} session
     * @param {Grant} grant
     * @param {number} sequence
     * @param {string} reason
     */
    release(session: Session, grant: Grant, sequence: number, reason: string): void;
    /**
     * Makes a grant void for good. After `released` there is nothing to lose.
     *
     * @param {Grant} grant
     */
    lose(grant: Grant): void;
    #private;
}
export type Grant = import("./grant.js").Grant;
export type Session = import("./session.js").Session;
