// Row of an operation in progress: a move, split or merge.

import { el } from "../controls/dom.js";

/** Creates a row with subject, direction, progress and phase, and a note after the phase for each of `notes`. */
export function progressRow(...notes) {
  const element = el("li", { class: "move" });
  const parts = {
    name: el("span", { class: "what" }),
    way: el("span", { class: "way" }),
    phase: el("span", { class: "tag" }),
    progress: el("progress", { max: 100 }),
    percent: el("span", { class: "number percent" }),
  };
  for (const note of notes) parts[note] = el("span", { class: `dim ${note}` });
  element.append(parts.name, parts.way, parts.percent, parts.progress, el("span", { class: "notes" }, parts.phase, ...notes.map((note) => parts[note])));
  element.parts = parts;
  return element;
}
