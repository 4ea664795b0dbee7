// Moves in progress: source, destination, progress, remaining time and reason.

import { cancelOrder } from "../data/actions.js";
import { confirmOrder } from "../controls/confirm.js";
import { byId, keep, mark, say } from "../controls/dom.js";
import { bytes, coming, count, counted } from "../data/format.js";
import { progressRow } from "./progress_row.js";
import { Speed } from "./speed.js";
import { store } from "../data/store.js";
import { isParticipant, spaced } from "../data/words.js";

const OVER = new Set(["done", "cancelled", "superseded", "failed"]);
/** Order of moves: the most advanced first, the waiting ones last. */
const PHASES = ["hand_over", "in_sync", "copying", "cleanup", "queued"];

let whole = new Speed();
let planId = null;
const speeds = new Map();

export function moves() {
  byId("cancel").addEventListener("click", askToCancel);
  store.on(["rebalance"], measure);
  store.on(["rebalance", "hello", "nodes"], draw);
}

function measure() {
  const { summary, moves: list = [] } = store.rebalance ?? {};
  if (!summary) return;
  if (summary.plan_id !== planId) {
    planId = summary.plan_id;
    whole = new Speed();
    speeds.clear();
  }
  const now = Date.now();
  whole.add(now, summary.bytes_done);
  const there = new Set();
  for (const move of list) {
    if (OVER.has(move.phase)) continue;
    there.add(move.move_id);
    if (!speeds.has(move.move_id)) speeds.set(move.move_id, new Speed());
    speeds.get(move.move_id).add(now, move.bytes_done);
  }
  for (const id of speeds.keys()) if (!there.has(id)) speeds.delete(id);
}

function draw() {
  const { running = false, summary, moves: list = [] } = store.rebalance ?? {};
  const open = list.filter((move) => !OVER.has(move.phase));
  const rank = (move) => (PHASES.indexOf(move.phase) + PHASES.length + 1) % (PHASES.length + 1);
  open.sort((left, right) => rank(left) - rank(right) || left.move_id - right.move_id);
  const failed = list.filter((move) => move.phase === "failed");
  keep(byId("move-list"), [...failed, ...open], (move) => move.move_id, () => progressRow("amount", "why"), update);
  say(byId("moves-count"), running ? counted(summary.moves_total - overCount(summary), "move") : "");
  const emptied = drains();
  say(byId("moves-sum"), [...emptied, summaryText(running, summary, emptied.length > 0)].filter(Boolean).join(" "));
  const total = byId("moves-progress");
  total.hidden = !running;
  if (running) total.value = summary.percent;
  byId("cancel").hidden = !(running && store.hello?.may_change);
}

/** Largest number of copies seen at each draining node. */
const mostHeld = new Map();

/** Progress of draining nodes, whose copies move without a plan. */
function drains() {
  const draining = (store.nodes ?? []).filter((node) => node.goal === "drain" && node.copies_held > 0);
  const there = new Set(draining.map((node) => node.node_id));
  for (const id of mostHeld.keys()) if (!there.has(id)) mostHeld.delete(id);
  return draining.map((of) => {
    const { node_id: id, node, copies_held: left } = of;
    const most = Math.max(left, mostHeld.get(id) ?? 0);
    mostHeld.set(id, most);
    const words = isParticipant(of) ? ["lease", "leases"] : ["replica", "replicas"];
    return `${node} is being drained: ${most > left ? `${count(left)} of ` : ""}${counted(most, ...words)} left.`;
  });
}

const overCount = ({ done, cancelled, superseded, failed }) => done + cancelled + superseded + failed;

/** Describes the last plan. A drain makes `moving` true without a plan. */
function summaryText(running, summary, moving) {
  if (!summary) return "No moves received yet.";
  if (summary.moves_total === 0) return running ? "A rebalance is starting." : moving ? "" : "No moves yet.";
  const ends = ["done", "cancelled", "superseded", "failed"].filter((word) => summary[word] > 0).map((word) => `${count(summary[word])} ${word}`);
  if (!running) return `${moving ? "No plan is running" : "Nothing moves"}. The last plan: ${ends.join(", ") || "no moves"}.`;
  const parts = [`${summary.percent}%`];
  if (summary.bytes_total > 0) parts.push(`${bytes(summary.bytes_done)} of ${bytes(summary.bytes_total)}`);
  const rate = whole.perSecond;
  if (rate > 0) parts.push(`${bytes(rate)} per second`);
  const left = whole.leftMs(summary.bytes_total);
  if (left !== null) parts.push(`about ${coming(left)} left`);
  const waits = summary.queued > 0 ? [`${count(summary.queued)} wait`] : [];
  // Lines break between the parts only.
  return [...parts, ...waits, ...ends].map((part) => part.replaceAll(" ", "\u00a0")).join(" · ");
}

function update(element, move) {
  const { parts } = element;
  const name = `${move.table}/${move.partition}`;
  mark(element, "data-partition", move.partition);
  mark(element, "data-table", move.table);
  mark(element, "data-phase", move.phase);
  say(parts.name, name);
  say(parts.way, `${move.from} → ${move.to}`);
  mark(parts.way, "title", `${move.from} → ${move.to}`);
  say(parts.phase, move.kind === "leadership" ? `leadership, ${spaced(move.phase)}` : spaced(move.phase));
  if (parts.progress.value !== move.percent) parts.progress.value = move.percent;
  mark(parts.progress, "aria-label", `Move of ${name}`);
  say(parts.percent, `${move.percent}%`);
  say(parts.amount, amountText(move));
  say(parts.why, move.message);
}

function amountText({ move_id: id, phase, bytes_done: done, bytes_total: total }) {
  if (total === 0) return "";
  const left = phase === "copying" ? speeds.get(id)?.leftMs(total) : null;
  return `${bytes(done)} of ${bytes(total)}${left ? `, ${coming(left)} left` : ""}`;
}

function askToCancel() {
  confirmOrder({
    title: "Cancel the rebalance?",
    label: "Cancel it",
    about: "Moves that can still be undone are undone: their new replicas are deleted. Moves past the point of no return continue.",
    order: cancelOrder,
    done: ({ moves_cancelled: undone, moves_too_late: late }) => `${counted(undone, "move")} undone${late > 0 ? `, ${count(late)} too late and going on` : ""}.`,
  });
}
