/** The clock of permissions: it counts the time in which the machine is suspended, as leases do. */

import { uptime } from "node:os";
import { performance } from "node:perf_hooks";

/**
 * Milliseconds of two clocks. `steady` is exact, and may stop while the machine is suspended. `boot` counts suspension.
 *
 * @typedef {{ steady: number, boot: number }} Instant
 */

/** Node has no clock that counts suspension, but on Linux `uptime` reads one, in steps of 10 ms. It rounds down. */
const HAS_BOOT_CLOCK = process.platform === "linux";
const BOOT_STEP_MS = HAS_BOOT_CLOCK ? 10 : 0;

export const clock = {
  /** @returns {Instant} */
  now() {
    const steady = performance.now();
    return { steady, boot: HAS_BOOT_CLOCK ? uptime() * 1000 : steady };
  },
};

/** An instant that has passed. @type {Instant} */
export const NEVER = { steady: -Infinity, boot: -Infinity };

/**
 * Returns the instant `milliseconds` after another one.
 *
 * @param {Instant} instant
 * @param {number} milliseconds
 * @returns {Instant}
 */
export function after(instant, milliseconds) {
  return { steady: instant.steady + milliseconds, boot: instant.boot + milliseconds };
}

/**
 * Returns the later one. Suspension moves `boot` further than `steady` and never back, so each clock has its own maximum.
 *
 * @param {Instant} one
 * @param {Instant} other
 * @returns {Instant}
 */
export function latest(one, other) {
  return { steady: Math.max(one.steady, other.steady), boot: Math.max(one.boot, other.boot) };
}

/**
 * Returns the milliseconds until an instant, by the clock that is further; never too many.
 *
 * @param {Instant} instant
 */
export function left(instant) {
  const now = clock.now();
  return Math.max(0, Math.min(instant.steady - now.steady, instant.boot - now.boot - BOOT_STEP_MS));
}
