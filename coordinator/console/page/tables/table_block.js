// Block of a table: heading, grid, cursor, and a line about the partition under the cursor.

import { el, mark, say } from "../controls/dom.js";
import { counted } from "../data/format.js";
import { Grid } from "./grid.js";
import { showDetails } from "./details.js";
import { store } from "../data/store.js";
import { hideTip, showTip } from "../controls/tooltip.js";
import { stateWord, STATES } from "../data/words.js";

const LETTERS = STATES.map((state) => state.letter);
/** Step of PageUp and PageDown, in rows. */
const PAGE_ROWS = 10;

export class TableBlock {
  #map;
  #cursor = null;
  #canvas = el("canvas", { "aria-hidden": "true" });
  #grid = new Grid(this.#canvas);
  #name = el("h3");
  #about = el("span", { class: "dim" });
  #frame = el("span", { class: "cursor", hidden: true });
  #line = el("output", { class: "cell-line" });
  #field;

  constructor(map) {
    this.#field = el("div", { class: "cells", tabindex: 0, role: "application", "aria-roledescription": "grid of partitions" });
    this.#field.append(this.#canvas, this.#frame);
    this.element = el("div", { class: "table" }, el("div", { class: "table-head" }, this.#name, this.#about, this.#line), this.#field);
    this.#listen();
    this.show(map);
  }

  get map() {
    return this.#map;
  }

  /** Replaces the map. */
  show(map) {
    this.#map = map;
    const { table, holds } = map;
    say(this.#name, table);
    mark(this.element, "data-table", table);
    mark(this.#canvas, "data-table", table);
    const help = "Arrow keys move, Enter opens a partition, x goes to the next that is not online.";
    mark(this.#field, "aria-label", `Partitions of the table ${table}. ${help}`);
    mark(this.element, "data-holds", holds);
  }

  /** Draws the changes within a size. */
  draw(look, width, heightMax) {
    const map = this.#map;
    this.#grid.draw(map, look, width, heightMax);
    const keys = store.tables?.find((table) => table.table_id === map.tableId)?.keys;
    const what = counted(map.total, map.holds === "lease" ? "lease" : "partition");
    say(this.#about, keys === "range" ? `${what}, by ranges of keys` : what);
    const counts = JSON.stringify(map.countsOf(LETTERS));
    mark(this.element, "data-counts", counts);
    mark(this.#canvas, "data-counts", counts);
    this.#showCursor();
  }

  /** Moves the cursor to a partition and describes it. */
  goTo(number, focus = false) {
    this.#cursor = Math.min(Math.max(number, 0), this.#map.length - 1);
    if (focus) this.#field.focus({ preventScroll: true });
    this.#showCursor();
    this.#frame.scrollIntoView({ block: "nearest" });
  }

  /** Moves the cursor to the next partition in a state, or to the first without a cursor. */
  goToState(letter) {
    const found = this.#map.nextInState(letter, this.#cursor ?? -1);
    if (found !== null) this.goTo(found, true);
    return found !== null;
  }

  #describe(number) {
    const map = this.#map;
    const state = map.state(number);
    const leader = map.leaders[number];
    if (state === ".") return `${number}: no partition has this number`;
    if (leader === 0) return `${map.table}/${number}: ${state === "l" ? "" : "no leader, "}${stateWord(state)}`;
    const who = store.nodeOf(leader)?.node ?? `number ${leader}`;
    return `${map.table}/${number}: ${who} ${map.holds === "lease" ? "owns it" : "leads"}, ${stateWord(state)}`;
  }

  #showCursor() {
    if (this.#cursor === null || this.#cursor >= this.#map.length) {
      this.#frame.hidden = true;
      say(this.#line, "");
      return;
    }
    const { x, y, size } = this.#grid.place(this.#cursor);
    this.#frame.hidden = false;
    const side = Math.max(size, 6);
    const shift = (size - side) / 2;
    const transform = `translate(${x + shift}px, ${y + shift}px)`;
    const length = `${side}px`;
    if (this.#frame.style.transform !== transform || this.#frame.style.width !== length) {
      Object.assign(this.#frame.style, { transform, width: length, height: length });
    }
    say(this.#line, this.#describe(this.#cursor));
    mark(this.#line, "data-partition", this.#cursor);
    mark(this.#line, "data-state", this.#map.state(this.#cursor));
    mark(this.#line, "data-leader", this.#map.leaders[this.#cursor]);
  }

  #under(event) {
    const box = this.#canvas.getBoundingClientRect();
    const number = this.#grid.at(event.clientX - box.left, event.clientY - box.top);
    return number !== null && number < this.#map.length && this.#map.state(number) !== "." ? number : null;
  }

  #listen() {
    const field = this.#field;
    field.addEventListener("pointermove", (event) => {
      const number = this.#under(event);
      if (number === null) hideTip();
      else showTip(this.#describe(number), event.clientX, event.clientY);
    });
    field.addEventListener("pointerleave", hideTip);
    field.addEventListener("click", (event) => {
      const number = this.#under(event);
      if (number === null) return;
      hideTip();
      this.goTo(number);
      showDetails(this.#map.table, number);
    });
    field.addEventListener("focus", () => {
      if (this.#cursor === null && this.#map.length > 0 && field.matches(":focus-visible")) this.goTo(0);
    });
    field.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.#map.length === 0) return;
    const at = this.#cursor ?? 0;
    const columns = this.#grid.columns;
    const to = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      ArrowUp: at - columns,
      ArrowDown: at + columns,
      PageUp: at - PAGE_ROWS * columns,
      PageDown: at + PAGE_ROWS * columns,
      Home: 0,
      End: this.#map.length - 1,
    }[event.key];
    if (to !== undefined) {
      // A step beyond the first or last row has no effect.
      if ((to >= 0 && to < this.#map.length) || event.key.startsWith("Page")) this.goTo(to);
    } else if (event.key === "Enter" || event.key === " ") {
      if (this.#map.state(at) !== ".") showDetails(this.#map.table, at);
    } else if (event.key === "x") {
      this.#nextTrouble(at);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #nextTrouble(at) {
    const found = LETTERS.filter((letter) => letter !== "o").map((letter) => this.#map.nextInState(letter, at));
    const ahead = found.filter((number) => number !== null).sort((left, right) => left - right);
    const next = ahead.find((number) => number > at) ?? ahead[0];
    if (next !== undefined) this.goTo(next);
  }
}
