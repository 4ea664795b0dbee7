/** A flag that callers can wait for, with a time limit. */
export class Flag {
    get isSet(): boolean;
    set(): void;
    clear(): void;
    /**
     * Waits until the flag is set, at most for `milliseconds`.
     *
     * @param {number} milliseconds
     * @returns {Promise<boolean>} True if it is set, false after a time-out.
     */
    wait(milliseconds: number): Promise<boolean>;
    #private;
}
