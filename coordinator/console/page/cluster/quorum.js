// Coordinators: role, lag, sync latency, or the reason why one does not answer.

import { byId, el, keep, mark, say } from "../controls/dom.js";
import { count, counted, latency } from "../data/format.js";
import { store } from "../data/store.js";
import { spaced } from "../data/words.js";

const SIGNS = { leader: "◆", follower: "●", candidate: "◐" };
/** A larger p99 of the syncs of one disk slows every write to the quorum. */
const SLOW_MS = 50;
const FAR_BEHIND = 1_000;

export function quorum() {
  store.on(["quorum", "status"], draw);
}

function draw() {
  const voters = store.quorum ?? [];
  keep(byId("quorum-rows"), voters, (voter) => voter.address, make, update);
  byId("quorum-empty").hidden = voters.length > 0;
  const answering = voters.filter((voter) => voter.error === null).length;
  const needed = Math.floor(voters.length / 2) + 1;
  say(byId("quorum-count"), voters.length === 0 ? "" : `${answering} of ${voters.length} answer, ${needed} are needed`);
  mark(byId("quorum"), "data-lost", answering < needed && voters.length > 0);
}

function make() {
  const cells = ["who", "role", "number term", "number behind", "number sync"].map((name) => el("td", { class: name }));
  const row = el("tr", {}, ...cells);
  const [who, role] = cells;
  row.parts = { id: el("b"), address: el("span", { class: "dim" }), sign: el("i", { class: "sign", "aria-hidden": "true" }), role: el("span"), note: el("span", { class: "note" }) };
  who.append(row.parts.id, row.parts.address, row.parts.note);
  role.append(row.parts.sign, row.parts.role);
  return row;
}

function update(row, voter) {
  const [, , term, behind, sync] = row.children;
  const { parts } = row;
  const lack = store.status?.coordinators?.find((known) => known.coordinator_id === voter.id)?.lack ?? null;
  const role = voter.error === null ? (voter.role ?? "unknown") : "no answer";
  mark(row, "data-address", voter.address);
  mark(row, "data-role", voter.error === null ? voter.role : "unreachable");
  mark(row, "data-level", voter.error !== null || lack ? "bad" : "good");
  say(parts.id, voter.id === null ? "?" : String(voter.id));
  say(parts.address, voter.address);
  say(parts.sign, voter.error === null ? (SIGNS[voter.role] ?? "○") : "▲");
  say(parts.role, spaced(role));
  say(parts.note, voter.error ?? lack ?? "");
  say(term, count(voter.term));
  say(behind, voter.role === "leader" ? "–" : voter.entries_behind === null ? "–" : count(voter.entries_behind));
  mark(behind, "data-late", voter.entries_behind >= FAR_BEHIND);
  mark(behind, "title", voter.applied_index === null ? null : `${counted(voter.applied_index, "entry", "entries")} applied, the last in its log is ${count(voter.last_log_index)}`);
  say(sync, latency(voter.sync_p99_ms));
  mark(sync, "data-late", voter.sync_p99_ms >= SLOW_MS);
}
