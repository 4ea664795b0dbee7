/**
 * Returns the instant `milliseconds` after another one.
 *
 * @param {Instant} instant
 * @param {number} milliseconds
 * @returns {Instant}
 */
export function after(instant: Instant, milliseconds: number): Instant;
/**
 * Returns the later one. Suspension moves `boot` further than `steady` and never back, so each clock has its own maximum.
 *
 * @param {Instant} one
 * @param {Instant} other
 * @returns {Instant}
 */
export function latest(one: Instant, other: Instant): Instant;
/**
 * Returns the milliseconds until an instant, by the clock that is further; never too many.
 *
 * @param {Instant} instant
 */
export function left(instant: Instant): number;
export namespace clock {
    /** @returns {Instant} */
    function now(): Instant;
}
/** An instant that has passed. @type {Instant} */
export const NEVER: Instant;
/**
 * Milliseconds of two clocks. `steady` is exact, and may stop while the machine is suspended. `boot` counts suspension.
 */
export type Instant = {
    steady: number;
    boot: number;
};
