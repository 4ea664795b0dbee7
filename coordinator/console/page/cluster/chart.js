// Line chart over time, as SVG.

import { svg } from "../controls/dom.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [46, 8, 8, 18];
/** A longer pause between two points is a gap in the line. While no page is open, the server records a point every five seconds. */
const GAP_MS = 15_000;

/**
 * `series` are `{name, value}`; `value` returns a point's number, or null. `scale` computes `{ticks, place}` from all numbers: the
 * values of the grid lines, and the function from a number to its part of the height. `text` formats a tick.
 */
export class Chart {
  #svg;
  #paths;
  #ground = svg("g", { class: "ground" });
  #cross = svg("line", { class: "cross", y1: TOP });
  #size = { width: 0, height: 0 };
  #ticks = "";

  constructor(home, { series, scale, text, spanMs }) {
    Object.assign(this, { home, series, scale, text, spanMs });
    this.#svg = svg("svg", { "aria-hidden": "true" });
    this.#paths = series.map(({ name }) => svg("path", { class: `line ${name}` }));
    this.#cross.style.display = "none";
    this.#svg.append(this.#ground, ...this.#paths, this.#cross);
    home.append(this.#svg);
    this.endMs = 0;
  }

  /** Draws the points up to a time. */
  draw(points, endMs) {
    const [width, height] = [this.home.clientWidth, this.home.clientHeight];
    if (width === 0) return;
    this.endMs = endMs;
    if (width !== this.#size.width || height !== this.#size.height) {
      this.#size = { width, height };
      this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.#cross.setAttribute("y2", height - BOTTOM);
      this.#ticks = "";
    }
    const numbers = points.flatMap((point) => this.series.map(({ value }) => value(point)).filter((number) => number !== null));
    const { ticks, place } = this.scale(numbers);
    const y = (number) => TOP + (1 - place(number)) * (height - TOP - BOTTOM);
    this.#drawGround(ticks, y);
    this.#paths.forEach((path, at) => path.setAttribute("d", this.#path(points, this.series[at].value, y)));
  }

  /** Returns the position of a time, in pixels from the left. */
  x(atMs) {
    const inner = this.#size.width - LEFT - RIGHT;
    return LEFT + inner * (1 - (this.endMs - atMs) / this.spanMs);
  }

  /** Returns the time at a position. */
  timeAt(x) {
    const inner = this.#size.width - LEFT - RIGHT;
    return this.endMs - this.spanMs * (1 - (x - LEFT) / inner);
  }

  /** Draws a vertical line at a time; null removes it. */
  cross(atMs) {
    this.#cross.style.display = atMs === null ? "none" : "";
    if (atMs === null) return;
    const x = this.x(atMs).toFixed(1);
    this.#cross.setAttribute("x1", x);
    this.#cross.setAttribute("x2", x);
  }

  #path(points, value, y) {
    let path = "";
    let before = null;
    for (const point of points) {
      const number = value(point);
      const x = this.x(point.at_ms);
      if (number === null || x < LEFT - 4) {
        before = null;
        continue;
      }
      path += `${before === null || point.at_ms - before > GAP_MS ? "M" : "L"}${x.toFixed(1)} ${y(number).toFixed(1)}`;
      before = point.at_ms;
    }
    return path;
  }

  #drawGround(ticks, y) {
    const { width, height } = this.#size;
    const key = ticks.join();
    if (key === this.#ticks) return;
    this.#ticks = key;
    const parts = [];
    const write = (text, x, at, anchor) => {
      const element = svg("text", { x, y: at, "text-anchor": anchor });
      element.textContent = text;
      parts.push(element);
    };
    for (const tick of ticks) {
      const at = Math.round(y(tick)) + 0.5;
      parts.push(svg("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
      write(this.text(tick), LEFT - 6, at + 3.5, "end");
    }
    const minutes = Math.round(this.spanMs / 60_000);
    for (let ago = minutes; ago >= 0; ago -= 1) {
      const x = width - RIGHT - ((width - LEFT - RIGHT) * ago) / minutes;
      write(ago === 0 ? "now" : `−${ago} m`, Math.min(x, width - RIGHT), height - 4, ago === 0 ? "end" : "middle");
    }
    this.#ground.replaceChildren(...parts);
  }
}

/** Linear scale from zero to a round number above the largest. */
export function linear(numbers) {
  const most = Math.max(...numbers, 4);
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [0.25, 0.5, 1, 2, 2.5].map((part) => part * power).find((part) => most / part <= 4) ?? power * 5;
  const top = Math.ceil(most / step) * step;
  const ticks = Array.from({ length: Math.round(top / step) + 1 }, (_, at) => at * step);
  return { ticks, place: (number) => number / top };
}

/** Logarithmic scale, so that latencies of 0.1 ms and of 1 s are both visible. */
export function logarithmic(numbers) {
  const positive = numbers.filter((number) => number > 0);
  const low = positive.length > 0 ? Math.floor(Math.log10(Math.min(...positive))) : -1;
  const high = Math.max(low + 1, positive.length > 0 ? Math.ceil(Math.log10(Math.max(...positive))) : 1);
  const ticks = Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at));
  return { ticks, place: (number) => (Math.log10(Math.max(number, 10 ** low)) - low) / (high - low) };
}
