// Section of partitions: a block per table, the choice of colours, and the legend.

import { fixedColour, loadColour, onTheme, ownerColour } from "../controls/colours.js";
import { byId, el, keep, mark, say } from "../controls/dom.js";
import { count } from "../data/format.js";
import { fairShares } from "../nodes/shares.js";
import { store } from "../data/store.js";
import { TableBlock } from "./table_block.js";
import { drawTile } from "./tiles.js";
import { STATES } from "../data/words.js";

/** Total height of all grids, in pixels of the page. It is exceeded only with the smallest cells. */
const HEIGHT = 400;
const HEIGHT_MIN = 60;
/** Limit of owners in the legend; the list of nodes has all. */
const NAMED_MAX = 8;

const blocks = new Map();
let mode = "owner";
let themes = 0;
let loads = new Map();
let loadStamp = 0;

export function tables() {
  for (const button of byId("grid-mode").querySelectorAll("button")) {
    button.addEventListener("click", () => {
      mode = button.value;
      store.touch("mode");
    });
  }
  byId("picked-clear").addEventListener("click", () => store.set("picked", null));
  store.on(["nodes"], weigh);
  store.on(["maps", "nodes", "tables", "picked", "mode", "room"], draw);
  onTheme(() => {
    themes += 1;
    legendKey = "";
    store.touch("mode");
  });
  new ResizeObserver(() => store.touch("room")).observe(byId("tables"));
}

/** Rounds loads to tenths, so that only cells with another colour are drawn. */
function weigh() {
  const shares = fairShares(store.nodes ?? []);
  let changed = shares.size !== loads.size;
  const next = new Map();
  for (const [node, { loadPercent }] of shares) {
    const step = loadPercent === null ? null : Math.min(200, Math.round(loadPercent / 10) * 10);
    changed ||= loads.get(node) !== step;
    next.set(node, step);
  }
  loads = next;
  if (changed) loadStamp += 1;
}

function draw() {
  const maps = [...store.maps.values()].sort((left, right) => left.tableId - right.tableId);
  const home = byId("tables");
  keep(home, maps, (map) => map.tableId, makeBlock, (element, map) => {
    const block = blocks.get(map.tableId);
    if (block.map !== map) block.show(map);
  });
  for (const table of blocks.keys()) if (!store.maps.has(table)) blocks.delete(table);
  const empty = byId("tables-empty");
  empty.hidden = maps.length > 0;
  say(empty, store.tables === null ? "No tables received yet." : "No table has partitions yet.");
  const width = home.clientWidth;
  if (width === 0) return;
  const look = { mode, picked: store.picked, loads, stamp: `${themes} ${mode === "load" ? loadStamp : ""}` };
  const all = maps.reduce((sum, map) => sum + Math.sqrt(map.length), 0);
  for (const map of maps) {
    const height = Math.max(HEIGHT_MIN, Math.floor((HEIGHT * Math.sqrt(map.length)) / all));
    blocks.get(map.tableId).draw(look, width, height);
  }
  for (const button of byId("grid-mode").querySelectorAll("button")) mark(button, "aria-pressed", button.value === mode);
  showLegend(maps);
  showPicked();
}

function makeBlock(map) {
  const block = new TableBlock(map);
  blocks.set(map.tableId, block);
  return block.element;
}

function showPicked() {
  const node = store.picked === null ? null : store.nodeOf(store.picked);
  byId("picked").hidden = store.picked === null;
  if (store.picked !== null) say(byId("picked-name"), node?.node ?? `number ${store.picked}`);
}

let legendKey = "";

/** Shows the number of partitions by state; a click selects the next one in that state. */
function showLegend(maps) {
  const sums = new Map(STATES.map(({ letter }) => [letter, 0]));
  for (const map of maps) {
    for (const [letter, number] of Object.entries(map.countsOf([...sums.keys()]))) sums.set(letter, sums.get(letter) + number);
  }
  keep(byId("states"), STATES, (state) => state.letter, makeState, (element, { letter, word }) => {
    const number = sums.get(letter);
    say(element.querySelector("b"), count(number));
    mark(element, "data-count", number);
    const button = element.querySelector("button");
    mark(button, "aria-label", `${count(number)} ${word}${number > 0 && letter !== "o" ? ": go to the next" : ""}`);
    button.disabled = number === 0 || letter === "o";
  });
  const owners = (store.nodes ?? []).filter((node) => node.partitions_led > 0);
  const gaps = maps.some((map) => map.length > map.total);
  const key = `${themes} ${mode} ${gaps} ${owners.length > NAMED_MAX ? owners.length : owners.map((node) => `${node.node_id} ${node.node}`)}`;
  if (key === legendKey) return;
  legendKey = key;
  for (const element of byId("states").children) paintIcon(element.querySelector("canvas"), element.dataset.letter);
  const merged = gaps ? [el("span", { class: "dim" }, "A dot is the number of a partition that was merged into another one.")] : [];
  byId("meaning").replaceChildren(...meaning(owners), ...merged);
}

function meaning(owners) {
  if (mode === "state") return [el("span", { class: "dim" }, "A cell is a partition; its colour and shape are its state.")];
  if (mode === "load") {
    const steps = [0, 50, 100, 150, 200].map((percent) => swatch(loadColour(percent)));
    return [el("span", { class: "dim" }, "Its owner’s operations: idle"), ...steps, el("span", { class: "dim" }, "twice its fair share")];
  }
  if (owners.length === 0) return [];
  if (owners.length > NAMED_MAX) {
    return [el("span", { class: "dim" }, `A cell is a partition, its colour one of ${count(owners.length)} owners: press the square before a node to see its own.`)];
  }
  return owners.map((node) => el("span", { class: "owner" }, swatch(ownerColour(node.node_id)), node.node));
}

function swatch(colour) {
  const element = el("i", { class: "swatch" });
  element.style.background = colour.css;
  return element;
}

function makeState({ letter, word }) {
  const go = () => [...blocks.values()].some((block) => block.goToState(letter));
  const button = el("button", { type: "button", onclick: go }, el("canvas", { "aria-hidden": "true" }), el("b"), ` ${word}`);
  const element = el("li", { "data-letter": letter }, button);
  paintIcon(button.querySelector("canvas"), letter);
  return element;
}

/** Draws the legend with the functions of the grid, so that both agree. */
function paintIcon(canvas, letter) {
  const scale = window.devicePixelRatio || 1;
  const size = Math.round(13 * scale);
  canvas.width = canvas.height = size;
  const colour = mode === "state" ? fixedColour(letter) : fixedColour("unknown");
  drawTile(canvas.getContext("2d"), 0, 0, size, letter, colour);
}
