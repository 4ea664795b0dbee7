export class Flag {
    get isSet(): boolean;
    set(): void;
    clear(): void;
    /**
     * Waits until the flag is set, at most for `milliseconds`.
     *
     * @param {number} milliseconds
     * @returns {Promise<boolean>} Whether it is set.
     */
    wait(milliseconds: number): Promise<boolean>;
    #private;
}
