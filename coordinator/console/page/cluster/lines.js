// Throughput and latency of the last five minutes, as measured by the nodes.

import { Chart, linear, logarithmic } from "./chart.js";
import { byId, say } from "../controls/dom.js";
import { latency, lasting, short } from "../data/format.js";
import { LOADS_FOR_MS, store } from "../data/store.js";

/** Latency on the axis, without trailing zeros. */
const tickText = (ms) => (ms >= 1_000 ? `${ms / 1_000} s` : `${Number(ms.toPrecision(2))} ms`);

const FIELDS = ["gets_per_second", "puts_per_second", "get_p50_ms", "get_p99_ms", "put_p50_ms", "put_p99_ms"];

let charts = [];
/** Time under the pointer, if it is over a chart. */
let pointedMs = null;

export function lines() {
  const series = (names) => names.map(([name, field]) => ({ name, value: (point) => point[field] ?? null }));
  charts = [
    new Chart(byId("throughput"), {
      series: series([["get", "gets_per_second"], ["put", "puts_per_second"]]),
      scale: linear,
      text: (number) => short(number).replace(".0", ""),
      spanMs: LOADS_FOR_MS,
    }),
    new Chart(byId("latency"), {
      series: series([["get p50", "get_p50_ms"], ["put p50", "put_p50_ms"], ["get p99", "get_p99_ms"], ["put p99", "put_p99_ms"]]),
      scale: logarithmic,
      text: tickText,
      spanMs: LOADS_FOR_MS,
    }),
  ];
  const resized = new ResizeObserver(() => store.touch("lines"));
  for (const chart of charts) {
    resized.observe(chart.home);
    chart.home.addEventListener("pointermove", (event) => point(chart.timeAt(event.clientX - chart.home.getBoundingClientRect().left)));
    chart.home.addEventListener("pointerleave", () => point(null));
  }
  store.on(["loads", "lines"], draw);
}

function draw() {
  const end = store.loads.at(-1)?.at_ms ?? store.nowMs();
  for (const chart of charts) chart.draw(store.loads, end);
  byId("load-empty").hidden = store.loads.length > 0;
  for (const { home } of charts) home.classList.toggle("unseen", store.loads.length === 0);
  show();
}

function point(atMs) {
  pointedMs = atMs;
  show();
}

/** Shows the numbers below the charts: of the last second, or of the second under the pointer. */
function show() {
  const nearest = pointedMs === null ? null : nearestTo(pointedMs);
  const shown = nearest ?? store.loads.at(-1);
  for (const chart of charts) chart.cross(nearest?.at_ms ?? null);
  for (const field of FIELDS) {
    const value = shown?.[field] ?? null;
    say(byId(`load-${field}`), field.endsWith("_ms") ? latency(value) : short(value));
  }
  const asked = shown ? `${shown.nodes_asked} ${shown.nodes_asked === 1 ? "node" : "nodes"} measured` : "";
  say(byId("load-count"), nearest ? `${lasting(store.loads.at(-1).at_ms - nearest.at_ms)} ago` : asked);
}

function nearestTo(atMs) {
  let best = null;
  for (const load of store.loads) if (!best || Math.abs(load.at_ms - atMs) < Math.abs(best.at_ms - atMs)) best = load;
  return best;
}
