// Grid with a cell per partition of a table: computes the layout and draws what changed.

import { faint, fixedColour, loadColour, ownerColour } from "../controls/colours.js";
import { Dots } from "./dots.js";
import { drawTile, SHAPE_FROM } from "./tiles.js";

/** Largest cell, in pixels of the page: a table of three partitions must not fill the screen. */
const CELL_MAX = 34;
/** Smallest cell, in pixels of the screen. Some screens have several per pixel of the page. */
const DOT = 2;
/** Smallest cell with a gap beside it. */
const GAP_FROM = 5;

export class Grid {
  #dots = new Dots();
  #context;
  #columns = 1;
  /** Size of a cell with its gap, and of the gap, in pixels of the screen. */
  #cell = 1;
  #gap = 0;
  #scale = 1;
  #laidOut = "";
  #drawnMap = null;
  #drawnAs = "";

  constructor(canvas) {
    this.canvas = canvas;
    this.#context = canvas.getContext("2d");
  }

  /** Number of columns: the step of the arrow keys up and down. */
  get columns() {
    return this.#columns;
  }

  /**
   * Draws the changed cells, or all of them if the size, the map or the colours changed. `look` has `mode` (owner, state or
   * load), `picked`, `loads` (percent by owner) and `stamp`, which differs if the colours do.
   */
  draw(map, look, width, heightMax) {
    const anew = this.#layOut(map.length, width, heightMax);
    const as = `${look.mode} ${look.picked} ${look.stamp}`;
    const taken = map.takeChanged();
    const all = anew || map !== this.#drawnMap || as !== this.#drawnAs;
    this.#drawnMap = map;
    this.#drawnAs = as;
    const changed = all ? null : taken;
    if (changed?.size === 0) return;
    const colourOf = (number) => this.#colour(map, look, number);
    if (this.#gap === 0) {
      this.#dots.draw(this.#context, map, colourOf, this.#cell, changed);
      return;
    }
    const size = this.#cell - this.#gap;
    const tile = (number) => {
      const [x, y] = [(number % this.#columns) * this.#cell, Math.floor(number / this.#columns) * this.#cell];
      drawTile(this.#context, x, y, size, map.state(number), colourOf(number));
    };
    if (changed) changed.forEach(tile);
    else {
      this.#context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      for (let number = 0; number < map.length; number += 1) tile(number);
    }
  }

  /** Returns the number of the partition at a position in the grid; null outside of all cells. */
  at(x, y) {
    const cell = this.#cell / this.#scale;
    const column = Math.floor(x / cell);
    if (column < 0 || column >= this.#columns || y < 0) return null;
    return Math.floor(y / cell) * this.#columns + column;
  }

  /** Returns the position of a cell in the grid, in pixels of the page. */
  place(number) {
    const cell = this.#cell / this.#scale;
    const size = (this.#cell - this.#gap) / this.#scale;
    return { x: (number % this.#columns) * cell, y: Math.floor(number / this.#columns) * cell, size };
  }

  #colour(map, look, number) {
    const leader = map.leaders[number];
    const letter = map.state(number);
    // A cell that is too small for a shape has the colour of its state instead of its owner's, unless it is online.
    const stateOnly = look.mode === "state" || (letter !== "o" && this.#cell - this.#gap < SHAPE_FROM);
    let colour;
    if (stateOnly) colour = fixedColour(letter);
    else if (leader === 0) colour = fixedColour("leaderless");
    else colour = look.mode === "load" ? loadColour(look.loads.get(leader)) : ownerColour(leader);
    return look.picked === null || look.picked === leader ? colour : faint(colour);
  }

  /** Chooses the largest size at which all cells fit. Returns whether the layout changed. */
  #layOut(length, width, heightMax) {
    const scale = window.devicePixelRatio || 1;
    const key = `${length} ${width} ${heightMax} ${scale}`;
    if (key === this.#laidOut) return false;
    this.#laidOut = key;
    this.#scale = scale;
    const least = Math.max(1, Math.ceil(DOT / scale));
    let cell = CELL_MAX;
    while (cell > least && Math.ceil(length / Math.max(1, Math.floor(width / cell))) * cell > heightMax) cell -= 1;
    this.#cell = Math.max(1, Math.round(cell * scale));
    this.#gap = cell < GAP_FROM ? 0 : Math.max(1, Math.round((cell >= 12 ? 2 : 1) * scale));
    this.#columns = Math.max(1, Math.min(length, Math.floor((width * scale) / this.#cell)));
    const rows = Math.ceil(length / this.#columns);
    const [wide, high] = [this.#columns * this.#cell, rows * this.#cell];
    Object.assign(this.canvas, { width: wide, height: high });
    Object.assign(this.canvas.style, { width: `${wide / scale}px`, height: `${high / scale}px` });
    this.#dots.resize(this.#columns, Math.max(1, rows));
    return true;
  }
}
