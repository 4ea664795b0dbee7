// Row in the list of nodes. Rows are reused for other nodes while the list scrolls.

import { ownerColour } from "../controls/colours.js";
import { el, mark, say } from "../controls/dom.js";
import { bytes, count, lasting, short } from "../data/format.js";
import { openMenu } from "./node_menu.js";
import { store } from "../data/store.js";
import { isParticipant, nodeLevel, nodeWords } from "../data/words.js";

/** Symbols beside the words. */
const SIGNS = { good: "●", aside: "◐", bad: "▲" };

export function makeRow() {
  const row = el("div", { class: "node", role: "row" });
  const parts = {
    swatch: el("button", { type: "button", class: "pick" }),
    name: el("span", { class: "name" }),
    sign: el("i", { class: "sign", "aria-hidden": "true" }),
    words: el("span"),
    zone: el("span", { class: "zone", role: "cell" }),
    led: bar("led"),
    copies: bar("copies"),
    rate: el("span"),
    load: el("span", { class: "load" }),
    data: el("span", { class: "number data", role: "cell" }),
    silent: el("span", { class: "number silent", role: "cell" }),
    menu: el("button", { type: "button", class: "quiet more", "aria-haspopup": "menu" }, "⋯"),
  };
  parts.swatch.addEventListener("click", () => {
    const { node_id: number } = row.node;
    store.set("picked", store.picked === number ? null : number);
  });
  parts.menu.addEventListener("click", () => openMenu(row.node, parts.menu));
  row.append(
    el("span", { class: "who", role: "rowheader" }, parts.swatch, parts.name),
    el("span", { class: "status", role: "cell" }, parts.sign, parts.words),
    parts.zone, parts.led.element, parts.copies.element,
    el("span", { class: "number rate", role: "cell" }, parts.rate, parts.load),
    parts.data, parts.silent,
    el("span", { class: "orders", role: "cell" }, parts.menu),
  );
  row.parts = parts;
  return row;
}

/** Creates a number with a bar and a mark at the fair share. */
function bar(kind) {
  const parts = { number: el("span", { class: "number" }), fill: el("i", { class: "fill" }), fair: el("i", { class: "fair" }) };
  parts.element = el("span", { class: `amount ${kind}`, role: "cell" }, parts.number, el("span", { class: "bar", "aria-hidden": "true" }, parts.fill, parts.fair));
  return parts;
}

/** Shows a node in a row. `scale` has the numbers of full bars, `share` the node's fair numbers. */
export function showRow(row, node, share, scale, silentMs) {
  row.node = node;
  const { parts } = row;
  const level = nodeLevel(node);
  mark(row, "data-name", node.node);
  mark(row, "data-status", node.status);
  mark(row, "data-goal", node.goal);
  mark(row, "data-level", level);
  say(parts.name, node.node);
  mark(parts.name, "title", `${node.node}, number ${node.node_id}, ${node.address}${node.weight === 100 ? "" : `, weight ${node.weight}`}`);
  say(parts.sign, SIGNS[level]);
  say(parts.words, nodeWords(node));
  mark(parts.words, "title", nodeWords(node));
  say(parts.zone, node.zone ?? "–");
  showBar(parts.led, node.partitions_led, share.led, scale.led, "led");
  showBar(parts.copies, isParticipant(node) ? null : node.copies_held, share.copies, scale.copies, "copies");
  say(parts.rate, short(node.operations_per_second));
  say(parts.load, share.loadPercent === null ? "–" : `${share.loadPercent > 999 ? ">9×" : `${Math.round(share.loadPercent)}%`}`);
  mark(parts.load, "data-high", share.loadPercent !== null && share.loadPercent >= 150 && node.operations_per_second >= 100);
  say(parts.data, bytes(node.bytes_stored));
  say(parts.silent, silentMs === null ? "–" : lasting(silentMs));
  mark(parts.silent, "data-late", node.status === "alive" && isLate(node, silentMs));
  const colour = ownerColour(node.node_id).css;
  if (parts.swatch.dataset.colour !== colour) {
    parts.swatch.dataset.colour = colour;
    parts.swatch.style.setProperty("--owner", colour);
  }
  mark(parts.swatch, "aria-pressed", store.picked === node.node_id);
  mark(parts.swatch, "aria-label", `Show the partitions of ${node.node}`);
  mark(parts.menu, "aria-label", `Orders for ${node.node}`);
  parts.menu.hidden = !store.hello?.may_change || node.status === "lost";
}

/** Returns whether heartbeats are overdue: by twice the interval, or by 5 s if the interval is unknown. */
const isLate = (node, silentMs) => silentMs !== null && silentMs > 2 * (node.timing?.heartbeat_for_ms ?? 2_500);

function showBar(parts, number, fair, full, what) {
  say(parts.number, count(number));
  mark(parts.element, "data-none", number === null);
  const part = full > 0 && number !== null ? Math.min(1, number / full) : 0;
  const width = `scaleX(${part.toFixed(4)})`;
  if (parts.fill.style.transform !== width) parts.fill.style.transform = width;
  parts.fair.hidden = fair === null || full === 0 || number === null;
  const left = parts.fair.hidden ? "0" : `${(Math.min(1, fair / full) * 100).toFixed(2)}%`;
  if (parts.fair.style.left !== left) parts.fair.style.left = left;
  const hint = fair === null ? null : `${count(number)} ${what}, its fair share is ${fair.toFixed(1)}`;
  mark(parts.element, "title", number === null ? null : hint);
}
