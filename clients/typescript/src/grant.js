/** Grants, and the permission that all grants of a session share. */

import { after, latest, left, NEVER } from "./clock.js";
import { Lost } from "./errors.js";

/** @typedef {"acquiring" | "owned" | "releasing" | "lost"} Stage */

/**
 * Stages of a grant that is not lost.
 *
 * @type {readonly Stage[]}
 */
const HELD = ["acquiring", "owned", "releasing"];

/**
 * The time until which the service may act.
 *
 * An answer to a heartbeat counts from the moment when the heartbeat was sent, and only once all events that the agent had
 * sent by then have arrived: a loss may be among them.
 */
export class Permission {
  #received = 0;
  #isEnded = false;
  /** Answers that name events which have not arrived. @type {{ until: import("./clock.js").Instant, sequence: number }[]} */
  #early = [];

  until = NEVER;

  /** Number of the newest event that has arrived. */
  get received() {
    return this.#received;
  }

  /** True once the permission has ended for good. */
  get isEnded() {
    return this.#isEnded;
  }

  /**
   * Handles the arrival of an event, whose effect on the grants has been applied.
   *
   * @param {number} sequence
   */
  receive(sequence) {
    this.#received = sequence;
    this.#apply();
  }

  /**
   * Handles an answer to a heartbeat.
   *
   * @param {import("./clock.js").Instant} sent When the heartbeat was sent.
   * @param {number} validForMs
   * @param {number} sequence
   */
  extend(sent, validForMs, sequence) {
    this.#early.push({ until: after(sent, validForMs), sequence });
    this.#apply();
  }

  /** Ends the permission for good. */
  end() {
    this.#isEnded = true;
    this.#early = [];
    this.until = NEVER;
  }

  #apply() {
    if (this.#isEnded) {
      this.#early = [];
      return;
    }
    for (const { until, sequence } of this.#early) {
      if (sequence <= this.#received) this.until = latest(this.until, until);
    }
    this.#early = this.#early.filter(({ until, sequence }) => sequence > this.#received && left(until) > 0);
  }
}

/** The part of a grant that the participant changes. */
class State {
  /** @type {Stage} */
  stage = "acquiring";
  /** Set once the service was asked to acquire it. */
  isHeard = false;
  controller = new AbortController();

  /**
   * @param {Permission} permission
   * @param {number} sequence Number of the event `acquire`.
   */
  constructor(permission, sequence) {
    this.permission = permission;
    this.sequence = sequence;
  }

  /**
   * Sets the stage if the present one is allowed. The only place that sets it: `lost` is final.
   *
   * @param {readonly Stage[]} allowed
   * @param {Stage} stage
   * @returns {boolean}
   */
  advance(allowed, stage) {
    if (!allowed.includes(this.stage)) return false;
    this.stage = stage;
    return true;
  }
}

/** Creates a grant. @type {(event: AcquireEvent, permission: Permission) => Grant} */
export let createGrant;
/** Returns the part of a grant that only the participant changes. @type {(grant: Grant) => State} */
export let stateOf;

/** @typedef {{ table: string, tableId: number, partition: number, epoch: number, sequence: number }} AcquireEvent */

/**
 * The right to act for a partition. Call {@link Grant.check} right before each use.
 *
 * The epoch is the fencing token: storage that keeps the highest epoch per `tableId` and `partition`, and refuses lower
 * ones, is protected from a former owner.
 */
export class Grant {
  #state;

  static {
    createGrant = (event, permission) => new Grant(event, permission);
    stateOf = (grant) => grant.#state;
  }

  /**
   * @private
   * @param {AcquireEvent} event
   * @param {Permission} permission
   */
  constructor({ table, tableId, partition, epoch, sequence }, permission) {
    /** @readonly */
    this.table = table;
    /** @readonly */
    this.tableId = tableId;
    /** @readonly */
    this.partition = partition;
    /** @readonly */
    this.epoch = epoch;
    this.#state = new State(permission, sequence);
  }

  /**
   * Aborted once the grant is lost or released, with {@link Lost} as its reason. The permission may end before that event
   * arrives, so the signal ends waiting work, and does not replace {@link Grant.check}.
   *
   * @returns {AbortSignal}
   */
  get signal() {
    return this.#state.controller.signal;
  }

  /**
   * True from `release` on: finish what is in progress, and begin no new work. The partition is still owned until `release` has
   * ended.
   *
   * @returns {boolean}
   */
  get isReleasing() {
    return this.#state.stage === "releasing";
  }

  /**
   * Returns the epoch if the partition is owned now. Does not wait.
   *
   * @throws {Lost} If it is not, also before `acquire` has returned.
   * @returns {number}
   */
  check() {
    if (this.validForMs() <= 0) throw lossOf(this);
    return this.epoch;
  }

  /**
   * Returns the milliseconds for which the partition is owned unless a heartbeat extends them; 0 if it is not.
   *
   * @returns {number}
   */
  validForMs() {
    const { stage, permission } = this.#state;
    return stage === "owned" || stage === "releasing" ? left(permission.until) : 0;
  }
}

/** @param {Grant} grant */
function lossOf({ partition, table, epoch }) {
  return new Lost(`partition ${partition} of ${table} is not owned: it was in epoch ${epoch}`);
}

/**
 * Makes a grant void for good. Returns whether it was not before.
 *
 * @param {Grant} grant
 * @returns {boolean}
 */
export function loseGrant(grant) {
  const state = stateOf(grant);
  if (!state.advance(HELD, "lost")) return false;
  state.controller.abort(lossOf(grant));
  return true;
}
