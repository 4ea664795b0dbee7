// List of nodes: sorted, filtered, and with elements for the visible rows only.

import { byId, mark, say } from "../controls/dom.js";
import { count } from "../data/format.js";
import { filtered, held, sorted } from "./node_order.js";
import { makeRow, showRow } from "./node_row.js";
import { fairShares } from "./shares.js";
import { store } from "../data/store.js";
import { nodeLevel } from "../data/words.js";

/** Extra rows above and below, so that quick scrolling shows no gap. */
const SPARE_ROWS = 6;

let column = "name";
let reversed = false;
let filter = "";
let shares = new Map();
let scale = { led: 0, copies: 0 };
let shown = [];
let arrivedAtMs = 0;
const rows = [];

export function nodes() {
  const list = byId("node-list");
  for (const button of document.querySelectorAll("#nodes [data-sort]")) {
    button.addEventListener("click", () => {
      reversed = column === button.dataset.sort ? !reversed : false;
      column = button.dataset.sort;
      list.scrollTop = 0;
      arrange(true);
      draw();
    });
  }
  byId("node-filter").addEventListener("input", (event) => {
    filter = event.target.value;
    list.scrollTop = 0;
    arrange(true);
    draw();
  });
  list.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  list.addEventListener("keydown", stepRows);
  new ResizeObserver(() => draw()).observe(list);
  store.on(["nodes"], () => {
    arrivedAtMs = Date.now();
    arrange(false);
    draw();
  });
  store.on(["picked", "hello", "clock", "theme"], draw);
}

function arrange(asked) {
  const all = store.nodes ?? [];
  shares = fairShares(all);
  scale = { led: fullAt(all, "partitions_led", "led"), copies: fullAt(all, "copies_held", "copies") };
  const list = byId("node-list");
  const found = filtered(all, filter);
  // Rows keep their places while a button has the focus or the pointer is over the list.
  const busy = !asked && (list.matches(":hover") || list.contains(document.activeElement));
  shown = busy ? held(found, shown) : sorted(found, column, reversed);
  for (const button of document.querySelectorAll("#nodes [data-sort]")) {
    const here = button.dataset.sort === column;
    const down = ["name", "zone", "status"].includes(column) ? !reversed : reversed;
    mark(button.parentElement, "aria-sort", here ? (down ? "ascending" : "descending") : null);
  }
}

/** Returns the numbers of full bars: slightly above the largest actual or fair number. */
function fullAt(all, field, share) {
  let most = 0;
  for (const node of all) most = Math.max(most, node[field], shares.get(node.node_id)?.[share] ?? 0);
  return most * 1.04;
}

function draw() {
  const list = byId("node-list");
  const body = byId("node-rows");
  const all = store.nodes;
  byId("nodes-empty").hidden = all === null || all.length > 0;
  byId("nodes-unknown").hidden = all !== null;
  byId("nodes-none").hidden = !(all?.length > 0 && shown.length === 0);
  say(byId("nodes-count"), summary(all ?? []));
  const height = parseFloat(getComputedStyle(list).getPropertyValue("--row"));
  const total = `${shown.length * height}px`;
  if (body.style.height !== total) body.style.height = total;
  mark(byId("node-table"), "aria-rowcount", shown.length + 1);
  const first = Math.max(0, Math.floor(list.scrollTop / height) - SPARE_ROWS);
  const last = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + SPARE_ROWS);
  while (rows.length < last - first) {
    rows.push(makeRow());
    body.append(rows.at(-1));
  }
  const passedMs = store.connection === "live" && store.trouble === null ? Date.now() - arrivedAtMs : 0;
  for (const [at, row] of rows.entries()) {
    const node = shown[first + at];
    row.hidden = first + at >= last;
    if (row.hidden) {
      // A hidden row has no name, so that a search by name does not find it.
      mark(row, "data-name", null);
      continue;
    }
    const transform = `translateY(${(first + at) * height}px)`;
    if (row.style.transform !== transform) row.style.transform = transform;
    mark(row, "aria-rowindex", first + at + 2);
    const silent = node.silent_for_ms === null ? null : node.silent_for_ms + (node.status === "alive" ? 0 : passedMs);
    showRow(row, node, shares.get(node.node_id), scale, silent);
  }
}

function summary(all) {
  if (all.length === 0) return "";
  const levels = { good: 0, aside: 0, bad: 0 };
  for (const node of all) levels[nodeLevel(node)] += 1;
  const parts = [shown.length === all.length ? count(all.length) : `${count(shown.length)} of ${count(all.length)}`];
  if (levels.bad > 0) parts.push(`${count(levels.bad)} failed, full or unreached`);
  if (levels.aside > 0) parts.push(`${count(levels.aside)} set aside`);
  return parts.join(" · ");
}

/** Moves the focus from a button to the same one of the next or previous row. */
function stepRows(event) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = event.target.closest?.(".node");
  if (!by || !row) return;
  event.preventDefault();
  const list = byId("node-list");
  const height = row.offsetHeight;
  const to = shown.indexOf(row.node) + by;
  if (to < 0 || to >= shown.length) return;
  if (to * height < list.scrollTop) list.scrollTop = to * height;
  if ((to + 1) * height > list.scrollTop + list.clientHeight) list.scrollTop = (to + 1) * height - list.clientHeight;
  draw();
  const kind = event.target.classList.contains("pick") ? ".pick" : ".more";
  rows.find((other) => !other.hidden && other.node === shown[to])?.querySelector(kind)?.focus({ preventScroll: true });
}
