// Preview of a plan: moves, totals and unmet goals.

import { applyOrder, plan as askForPlan } from "../data/actions.js";
import { commandBox } from "../controls/command.js";
import { announce, refusalBox, sentence } from "../controls/dialog.js";
import { byId, el, say } from "../controls/dom.js";
import { bytes, count, counted } from "../data/format.js";
import { store } from "../data/store.js";

/** Limit of listed moves. */
const LISTED_MAX = 100;
const GAINS_MAX = 12;

export function plan() {
  byId("plan-ask").addEventListener("click", ask);
  store.on(["rebalance", "hello"], () => {
    const apply = byId("plan").querySelector("[data-action=apply]");
    if (apply) apply.hidden = !store.hello?.may_change;
  });
}

async function ask() {
  const button = byId("plan-ask");
  button.disabled = true;
  say(button, "Planning …");
  try {
    show(await askForPlan());
  } catch (refusal) {
    byId("plan-body").replaceChildren(refusalBox(refusal), commandBox("archon rebalance plan").element);
  }
  button.disabled = false;
  say(button, "Plan");
}

function show(made) {
  const home = byId("plan-body");
  const close = el("button", { type: "button", class: "quiet", onclick: () => home.replaceChildren() }, made.moves.length === 0 ? "Close" : "Discard");
  const unmet = (made.unmet ?? []).slice(0, 8).map((item) => el("li", {}, sentence(item.message)));
  const cannot = unmet.length > 0 ? [el("h4", {}, "Unmet goals"), el("ul", { class: "unmet" }, ...unmet)] : [];
  if (made.moves.length === 0) {
    home.replaceChildren(el("p", { class: "plan-sum" }, "No moves: every node has its fair share."), ...cannot, el("div", { class: "buttons" }, close));
    return;
  }
  const outcome = el("div", { "aria-live": "polite" });
  const apply = el("button", { type: "button", class: "primary", "data-action": "apply" }, "Apply this plan");
  apply.hidden = !store.hello?.may_change;
  apply.addEventListener("click", () => applyIt(made, apply, outcome));
  home.replaceChildren(
    el("p", { class: "plan-sum" }, sums(made)),
    gains(made),
    el("ol", { class: "plan-moves", tabindex: 0, "aria-label": "Moves of the plan" }, ...made.moves.slice(0, LISTED_MAX).map(line)),
    made.moves.length > LISTED_MAX ? el("p", { class: "dim" }, `and ${counted(made.moves.length - LISTED_MAX, "more move")}`) : "",
    ...cannot, outcome,
    commandBox("archon rebalance plan").element, commandBox("archon rebalance apply").element,
    el("div", { class: "buttons" }, close, apply),
  );
}

const isCopy = (move) => move.kind !== "leadership";

function sums({ moves, table_version: version }) {
  const copies = moves.filter(isCopy);
  const total = copies.reduce((sum, move) => sum + move.bytes_total, 0);
  const parts = [];
  if (copies.length > 0) parts.push(`${counted(copies.length, "replica")} move, ${bytes(total)}`);
  if (moves.length > copies.length) parts.push(`${counted(moves.length - copies.length, "leadership")} ${moves.length - copies.length === 1 ? "changes" : "change"} hands`);
  return `${sentence(parts.join("; "))} Made for table version ${count(version)}; everything keeps being served.`;
}

/** Returns the gains and losses of each node, the largest first. */
function gains({ moves }) {
  const sums = new Map();
  const add = (node, by) => sums.set(node, (sums.get(node) ?? 0) + by);
  for (const move of moves.filter(isCopy)) {
    add(move.from, -1);
    add(move.to, 1);
  }
  const changed = [...sums].filter(([, by]) => by !== 0).sort((left, right) => Math.abs(right[1]) - Math.abs(left[1]));
  const items = changed.slice(0, GAINS_MAX).map(([node, by]) => el("li", { "data-gains": by > 0 }, `${node} `, el("b", {}, by > 0 ? `+${by}` : `−${-by}`)));
  if (changed.length > GAINS_MAX) items.push(el("li", { class: "dim" }, `${count(changed.length - GAINS_MAX)} more nodes`));
  return el("ul", { class: "gains" }, ...items);
}

const line = (move) =>
  el("li", {},
    el("span", { class: "what" }, `${move.table}/${move.partition}`),
    el("span", { class: "way" }, `${move.from} → ${move.to}`),
    el("span", { class: "number dim" }, isCopy(move) ? bytes(move.bytes_total) : "leadership"),
    el("span", { class: "dim why", title: move.message }, move.message));

async function applyIt(made, button, outcome) {
  if (button.disabled) return;
  button.disabled = true;
  try {
    const { moves_started: started } = await applyOrder(made).run();
    byId("plan-body").replaceChildren();
    byId("plan-ask").focus();
    announce(`${counted(started, "move")} begun.`);
  } catch (refusal) {
    // A plan is valid for one version of the tables: after a refusal a new one is needed.
    outcome.replaceChildren(refusalBox(refusal));
    button.disabled = refusal.code === "stale_plan" || refusal.code === "StalePlan";
  }
}
