// Splits and merges in progress: partitions, progress and obstacles.

import { byId, keep, mark, say } from "../controls/dom.js";
import { counted, keyText } from "../data/format.js";
import { progressRow } from "./progress_row.js";
import { store } from "../data/store.js";
import { spaced } from "../data/words.js";

export function reshapings() {
  store.on(["rebalance"], draw);
}

function draw() {
  const { reshapings: list = [], reshapings_total: total = 0 } = store.rebalance ?? {};
  keep(byId("reshaping-list"), list, ({ table_id: table, partition, right }) => `${table}/${partition}/${right}`, () => progressRow("why"), update);
  say(byId("reshapings-more"), total > list.length ? `and ${counted(total - list.length, "more split or merge", "more splits or merges")}` : "");
}

function update(element, reshaping) {
  const { parts } = element;
  const name = `${reshaping.table}/${reshaping.partition}`;
  const merges = reshaping.kind === "merge";
  mark(element, "data-table", reshaping.table);
  mark(element, "data-partition", reshaping.partition);
  mark(element, "data-phase", reshaping.reshaping_phase);
  say(parts.name, name);
  say(parts.way, merges ? `and ${reshaping.right} become one` : `${reshaping.right} is split off from ${keyText(reshaping.at)} on`);
  say(parts.phase, `${spaced(reshaping.kind)}, ${spaced(reshaping.reshaping_phase)}`);
  // The progress of a merge is unknown.
  if (merges) parts.progress.removeAttribute("value");
  else if (parts.progress.value !== reshaping.percent) parts.progress.value = reshaping.percent;
  mark(parts.progress, "aria-label", `${merges ? "Merge" : "Split"} of ${name}`);
  say(parts.percent, merges ? "" : `${reshaping.percent}%`);
  say(parts.why, reshaping.message);
}
