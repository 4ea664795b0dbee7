export { Grant } from "./grant.js";
export { Participant } from "./participant.js";
export type Owner = import("./http.js").Owner;
export type Whereabouts = import("./http.js").Whereabouts;
export type Options = import("./options.js").Options;
export { AgentError, Lost, NotOwned } from "./errors.js";
