// State of the cluster in one sentence, and each reason for a wait with its remedy.

import { sentence } from "../controls/dialog.js";
import { byId, el, keep, mark, say } from "../controls/dom.js";
import { count, counted, lasting } from "../data/format.js";
import { store } from "../data/store.js";
import { isParticipant, subjectText } from "../data/words.js";

/** Reasons that are shown at once; a click shows the others. */
const OPEN_MAX = 3;
const LISTED_MAX = 100;
/** Levels by the severity of a reason. An unknown severity counts as the worst. */
const LEVELS = { notice: "good", warning: "warn", alarm: "bad" };

let unfolded = false;

export function health() {
  byId("reasons-more").addEventListener("click", () => {
    unfolded = !unfolded;
    draw();
  });
  store.on(["status", "trouble", "connection", "clock"], draw);
}

function draw() {
  const { status, trouble, connection } = store;
  const [level, text] = verdict(status, trouble, connection);
  mark(byId("health"), "data-level", level);
  say(byId("health-text"), text);
  say(byId("health-sign"), { good: "●", warn: "◐", bad: "▲" }[level] ?? "○");
  const old = status !== null && (trouble !== null || connection !== "live");
  byId("old").hidden = !old;
  if (old) say(byId("old-text"), oldText(trouble));
  const reasons = (status?.reasons ?? []).slice(0, LISTED_MAX);
  const seen = new Map();
  const keyOf = (reason) => {
    const key = `${reason.code} ${subjectText(reason.subject)} ${reason.message}`;
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return `${key} ${seen.get(key)}`;
  };
  keep(byId("reasons"), unfolded ? reasons : reasons.slice(0, OPEN_MAX), keyOf, make, update);
  const more = byId("reasons-more");
  more.hidden = reasons.length <= OPEN_MAX;
  mark(more, "aria-expanded", String(unfolded));
  say(more, unfolded ? "Fewer" : `${count(reasons.length - OPEN_MAX)} more`);
}

/** Returns the level and the sentence of the most important condition. */
function verdict(status, trouble, connection) {
  if (!status) {
    if (trouble !== null) return ["bad", `The state of the cluster is unknown: ${sentence(trouble)}`];
    return ["none", connection === "live" ? "Asking the cluster …" : "Waiting for the console …"];
  }
  const { partitions_online: online, partitions_total: total, nodes_alive: alive, nodes_min: least } = status;
  const waits = status.reasons.length > 0 ? ` ${counted(status.reasons.length, "thing")} ${status.reasons.length === 1 ? "waits" : "wait"}:` : "";
  if (status.leader_id === null) return ["bad", `No coordinator leads: partitions stay available, but nothing can be changed.${waits}`];
  if (total === 0 || (status.cluster_id === "" && alive < least)) return ["none", emptyText(status)];
  const unused = leasesNotUsedYet(status.reasons);
  if (online < total && online + unused >= total) return ["warn", `${counted(unused, "lease")} of ${counted(total, "partition")} ${unused === 1 ? "waits" : "wait"} for ${unused === 1 ? "its" : "their"} first participant, all others are served.${waits}`];
  if (online < total) return [status.cluster_id === "" ? "none" : "bad", `${counted(total - online, "partition")} of ${count(total)} ${total - online === 1 ? "is" : "are"} not served.${waits}`];
  const short = status.partitions_under_replicated;
  if (short > 0) return [status.reasons.length > 0 ? worst(status.reasons) : "warn", `All ${counted(total, "partition")} are served, ${count(short)} under-replicated.${waits}`];
  if (status.reasons.length > 0) return [worst(status.reasons), `All ${counted(total, "partition")} are served with all their replicas.${waits}`];
  return ["good", `All ${counted(total, "partition")} are served with all their replicas, by ${servers(alive)}.`];
}

/** Returns the worst level of these reasons. */
function worst(reasons) {
  const levels = reasons.map((reason) => LEVELS[reason.severity] ?? "bad");
  return ["bad", "warn"].find((level) => levels.includes(level)) ?? "good";
}

/** Participants own leases; nodes serve all other partitions. */
function servers(nodesAlive) {
  const owners = (store.nodes ?? []).filter((node) => isParticipant(node) && node.status === "alive" && node.partitions_led > 0).length;
  return owners === 0 ? counted(nodesAlive, "node") : `${counted(nodesAlive, "node")} and ${counted(owners, "participant")}`;
}

/** Counts leases that wait for the first participant of their table: a service that has not started yet is no failure. */
function leasesNotUsedYet(reasons) {
  const tables = new Set(reasons.filter((reason) => reason.code === "awaits_first_participant").map((reason) => reason.subject?.table));
  return (store.tables ?? []).filter((table) => tables.has(table.table)).reduce((sum, table) => sum + table.partitions_total, 0);
}

function emptyText({ nodes_alive: alive, nodes_min: least, cluster_id: id }) {
  if (alive < least) return `The cluster is empty: it waits for ${counted(least, "node")}, ${alive === 0 ? "none is" : alive === 1 ? "1 is" : `${count(alive)} are`} alive.`;
  return id === "" ? "The cluster is about to be created." : "The cluster has no partitions yet: there is no table.";
}

function oldText(trouble) {
  const since = store.heardAtMs === null ? "" : ` The page shows the state of ${lasting(Date.now() - (shownAtMs() ?? Date.now()))} ago.`;
  return `${trouble === null ? "The console does not answer." : sentence(trouble)}${since}`;
}

/** Returns the time of the last message about the cluster, by this machine's clock. */
let troubleSinceMs = null;
store.on(["trouble"], () => {
  troubleSinceMs = store.trouble === null ? null : (troubleSinceMs ?? Date.now());
});
const shownAtMs = () => troubleSinceMs ?? store.heardAtMs;

function make() {
  const parts = { message: el("span", { class: "message" }), about: el("span", { class: "dim" }), remedy: el("span", { class: "remedy" }) };
  const element = el("li", {}, el("p", {}, parts.message, " ", parts.about), parts.remedy);
  element.parts = parts;
  return element;
}

function update(element, reason) {
  const { parts } = element;
  mark(element, "data-code", reason.code);
  say(parts.message, sentence(reason.message));
  const since = reason.began_at_ms ? `, for ${lasting(store.nowMs() - reason.began_at_ms)}` : "";
  say(parts.about, `${subjectText(reason.subject)}${since}`);
  parts.remedy.hidden = !reason.remedy;
  say(parts.remedy, reason.remedy ? sentence(reason.remedy) : "");
}
