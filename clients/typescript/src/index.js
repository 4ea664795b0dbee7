/**
 * Exclusive ownership of shards, through the agent `archon participant` on the same machine.
 *
 * Node 18 or newer, no dependencies. The protocol is in docs/reference/agent.md.
 *
 * @module
 */

export { AgentError, Lost, NotOwned } from "./errors.js";
export { Grant } from "./grant.js";
export { Participant } from "./participant.js";

/**
 * @typedef {import("./http.js").Owner} Owner
 * @typedef {import("./http.js").Whereabouts} Whereabouts
 * @typedef {import("./options.js").Options} Options
 */
