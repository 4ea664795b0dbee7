// Dialog with the details of a partition. It refreshes while it is open.

import { partitionDescription, partitionOrder } from "../data/actions.js";
import { commandBox } from "../controls/command.js";
import { confirmOrder } from "../controls/confirm.js";
import { openDialog, refusalBox, sentence } from "../controls/dialog.js";
import { byId, el, mark } from "../controls/dom.js";
import { bytes, count, counted, keyText } from "../data/format.js";
import { store } from "../data/store.js";
import { partitionArguments, spaced } from "../data/words.js";

const EVERY_MS = 3_000;

/** Opens the dialog. */
export function showDetails(table, number) {
  const content = el("div", { class: "details" }, el("p", { class: "dim" }, "Asking …"));
  const command = commandBox(`archon partition describe ${partitionArguments(table, number)}`);
  const dialog = openDialog("details", `Partition ${table}/${number}`, content, el("div", { class: "orders" }), command.element);
  mark(dialog, "data-partition", `${table}/${number}`);
  let timer = null;
  const over = new AbortController();
  dialog.addEventListener("close", () => (clearTimeout(timer), over.abort()), { once: true, signal: over.signal });
  const ask = async () => {
    let next;
    try {
      const description = await partitionDescription(table, number);
      next = describe(description);
      if (!over.signal.aborted) offer(dialog.querySelector(".orders"), description);
    } catch (refusal) {
      next = [refusalBox(refusal)];
    }
    if (over.signal.aborted) return;
    content.replaceChildren(...next);
    timer = setTimeout(ask, EVERY_MS);
  };
  ask();
}

function describe(partition) {
  const parts = [facts(partition), copies(partition)];
  for (const reason of partition.reasons ?? []) {
    const remedy = reason.remedy ? el("p", { class: "remedy" }, sentence(reason.remedy)) : null;
    parts.unshift(el("div", { class: "reason" }, el("p", {}, sentence(reason.message)), remedy));
  }
  return parts;
}

function facts(partition) {
  const leads = partition.holds === "lease" ? "Owner" : "Leader";
  const rows = [
    ["State", spaced(partition.status)],
    [leads, partition.leader ?? "none"],
    ["Epoch", count(partition.epoch)],
    ["Version", count(partition.version)],
  ];
  if (partition.holds !== "lease") rows.push(["Replicas", `${partition.replication} wanted, ${partition.min_in_sync} must be in sync for writes`]);
  if (partition.range) rows.push(["Keys", rangeText(partition.range)]);
  if (partition.move) rows.push(["Move", `${partition.move.from} → ${partition.move.to}, ${spaced(partition.move.phase)}, ${partition.move.percent}%`]);
  if (partition.reshaping) rows.push(reshapingRow(partition));
  for (const bar of partition.bars ?? []) rows.push(["Barred", bar.why ? `${bar.node}: ${bar.why}` : bar.node]);
  return el("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function reshapingRow({ partition: number, reshaping }) {
  const { kind, reshaping_phase: phase, partition: left, right, message } = reshaping;
  if (kind === "split") return ["Split", `${spaced(phase)}, partition ${right} from ${keyText(reshaping.at)} on: ${message}`];
  return ["Merge", `${left === number ? `gets the keys of partition ${right}` : `gives its keys to partition ${left}`}: ${message}`];
}

const rangeText = ({ begin, end }) => `from ${begin === "" ? "the first" : keyText(begin)} up to ${end === null ? "the last" : `not including ${keyText(end)}`}`;

function copies(partition) {
  if (!partition.copies?.length) return el("p", { class: "dim" }, partition.holds === "lease" ? "A lease has no replicas." : "It has no replicas yet.");
  const row = (copy) =>
    el("tr", { "data-node": copy.node },
      el("td", {}, copy.node, copy.leads ? el("span", { class: "tag" }, "leads") : null),
      el("td", {}, copy.state === "live" ? "in sync" : spaced(copy.state)),
      el("td", {}, spaced(copy.node_status)),
      el("td", { class: "number" }, bytes(copy.bytes_stored || null)));
  const head = ["Replica on", "Replica", "Node", "Stores"].map((text, at) => el("th", { scope: "col", class: at === 3 ? "number" : null }, text));
  return el("table", { class: "copies" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...partition.copies.map(row)));
}

/** Creates the buttons of orders once: a refresh must not replace a button that is being pressed. */
function offer(home, { table, partition: number, range, holds }) {
  if (home.childElementCount > 0 || !store.hello?.may_change) return;
  const name = `${table}/${number}`;
  const ask = (verb, label, about, fields, done) => {
    const open = () => {
      byId("details").close();
      confirmOrder({ title: `${label} ${name}?`, about, label, fields, order: (body) => partitionOrder(verb, table, number, body), done });
    };
    home.append(el("button", { type: "button", class: "quiet", "data-action": verb, onclick: open }, label));
  };
  const who = holds === "lease" ? "Its owner releases it and starts a new epoch" : "The same leader starts a new epoch";
  const why = [{ name: "why", label: "Why", hint: "shown in the events" }];
  ask("bump", "Bump", `${who}, in the next epoch.`, why, (answer) => `${name} is bumped${answer?.epoch ? `, to epoch ${answer.epoch}` : ""}.`);
  if (!range) return;
  const at = [{ name: "at", label: "At the key", hint: "without one: at the middle of its bytes" }];
  ask("split", "Split", "Its upper keys move to a new partition; all keys stay available.", at, (answer) => `${name} is being split: partition ${answer.right} gets the upper keys.`);
  ask("merge", "Merge", "It receives all keys of its right neighbour, which is then deleted.", [], (answer) => `${name} is being merged with partition ${answer.right}.`);
}

