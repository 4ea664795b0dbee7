/** Sessions with the agent, and the effect of events on their grants. */

import { Flag } from "./flag.js";
import { createGrant, Permission, stateOf } from "./grant.js";
import { integer, string } from "./http.js";

/** @typedef {import("./grant.js").Grant} Grant */
/** @typedef {import("./http.js").Document} Document */

/**
 * Returns the key of a partition, also for messages.
 *
 * @param {{ table: string, partition: number }} partition
 */
export function keyOf({ table, partition }) {
  return `${partition} of ${table}`;
}

/** Most partitions that the warning of an incomplete stop names. */
const UNRELEASED_SHOWN = 8;

/** One session with the agent. */
export class Session {
  #callbacks;

  permission = new Permission();
  /** @type {Map<string, Grant>} */
  grants = new Map();
  over = new Flag();
  /** Set once this side gives the session up: the agent refuses it. */
  failed = new Flag();

  /**
   * @param {Document} hello
   * @param {import("./callbacks.js").Callbacks} callbacks
   */
  constructor(hello, callbacks) {
    this.#callbacks = callbacks;
    this.name = string(hello, "session");
    const tables = hello["tables"];
    if (!Array.isArray(tables)) throw new Error("hello names no tables");
    this.tables = tables.map(String);
    this.leaseMs = integer(hello, "service_lease_for_ms");
    this.heartbeatEveryMs = integer(hello, "heartbeat_every_for_ms");
  }

  /** Describes what a stop waits for. */
  unreleased() {
    const held = [...this.grants.keys()].map((key) => `partition ${key}`);
    if (held.length === 0) return "the end of the session by the agent";
    const more = held.length > UNRELEASED_SHOWN ? ` and ${held.length - UNRELEASED_SHOWN} more` : "";
    return `the release of ${held.slice(0, UNRELEASED_SHOWN).join(", ")}${more}`;
  }

  /**
   * Applies an event at once; callbacks run later. An unknown event is from a newer agent, and has no effect.
   *
   * @param {Document} event
   * @returns {string | undefined} The reason, if the event ends the session.
   */
  take(event) {
    const { permission } = this;
    const sequence = integer(event, "sequence");
    if (this.over.isSet || permission.isEnded || sequence <= permission.received) return undefined;
    if (sequence !== permission.received + 1) {
      // A loss may be missing.
      throw new Error(`event ${sequence} follows event ${permission.received}`);
    }
    const kind = event["event"];
    if (kind === "ended") return String(event["reason"] ?? "");
    if (kind === "acquire" || kind === "release" || kind === "lost") {
      const [table, partition] = [string(event, "table"), integer(event, "partition")];
      const key = keyOf({ table, partition });
      if (kind === "acquire") {
        const [tableId, epoch] = [integer(event, "table_id"), integer(event, "epoch")];
        const grant = createGrant({ table, tableId, partition, epoch, sequence }, permission);
        this.grants.set(key, grant);
        this.#callbacks.acquire(this, grant);
      } else if (kind === "release") {
        const grant = this.grants.get(key);
        // The answer to `acquired` may be on its way: acquiring.
        if (grant !== undefined && stateOf(grant).advance(["acquiring", "owned"], "releasing")) {
          this.#callbacks.release(this, grant, sequence, String(event["reason"] ?? ""));
        }
      } else {
        this.#lose(key);
      }
    }
    permission.receive(sequence);
    return undefined;
  }

  /**
   * Ends the session: its grants are lost.
   *
   * @returns {boolean} True if it had not ended before.
   */
  end() {
    this.permission.end();
    const isFirst = !this.over.isSet;
    this.over.set();
    for (const key of [...this.grants.keys()]) this.#lose(key);
    return isFirst;
  }

  /** @param {string} key */
  #lose(key) {
    const grant = this.grants.get(key);
    this.grants.delete(key);
    if (grant !== undefined) this.#callbacks.lose(grant);
  }
}
