// List of events, newest first, with their causes.

import { byId, el, keep, mark, say } from "../controls/dom.js";
import { clock, count, dateTime, lasting } from "../data/format.js";
import { store } from "../data/store.js";
import { causeText, spaced, subjectText } from "../data/words.js";

/** Kinds of events by prefix or suffix of their codes, so that codes of newer servers are classified, too. */
const KINDS = [
  { kind: "failure", sign: "▲", codes: /failed|lost|damaged|disputed|surpassed|data_loss/ },
  { kind: "move", sign: "→", codes: /^plan_|move_|repair_|copy_retired|drain/ },
  { kind: "leadership", sign: "◆", codes: /leader|election|elected|hand|bumped|online|offline/ },
  { kind: "table", sign: "▦", codes: /table|split|parted|merge/ },
  { kind: "member", sign: "●", codes: /node_|member|maintenance|goal|bar_|barred/ },
];
const OTHER = { kind: "other", sign: "·" };

const kindOf = (code) => KINDS.find(({ codes }) => codes.test(code)) ?? OTHER;

let filter = "";
let kind = "";

export function events() {
  byId("event-filter").addEventListener("input", (event) => {
    filter = event.target.value.toLowerCase();
    draw();
  });
  byId("event-kind").addEventListener("change", (event) => {
    kind = event.target.value;
    draw();
  });
  store.on(["events"], draw);
  store.on(["clock"], age);
}

function wanted(event) {
  const mine = kind === "" || (kind === "people" ? event.by?.kind === "admin" : kindOf(event.code).kind === kind);
  if (!mine || filter === "") return mine;
  const text = `${event.message} ${spaced(event.code)} ${subjectText(event.subject)} ${causeText(event.by)}`.toLowerCase();
  return filter.split(/\s+/).every((word) => text.includes(word));
}

function draw() {
  const all = store.events ?? [];
  const shown = all.filter(wanted).reverse();
  // Several events may have the same position in the log.
  const seen = new Map();
  const keyOf = (event) => {
    const key = `${event.index} ${event.code} ${subjectText(event.subject)}`;
    const before = seen.get(key) ?? 0;
    seen.set(key, before + 1);
    return `${key} ${before}`;
  };
  keep(byId("event-list"), shown, keyOf, make, () => {});
  say(byId("events-count"), all.length === 0 ? "" : shown.length === all.length ? `last ${count(all.length)}` : `${count(shown.length)} of ${count(all.length)}`);
  const empty = byId("events-empty");
  empty.hidden = shown.length > 0;
  say(empty, store.events === null ? "No events received yet." : all.length === 0 ? "No events yet." : "No event matches the filter.");
  age();
}

function make(event) {
  const { kind: its, sign } = kindOf(event.code);
  const time = el("time", { datetime: new Date(event.at_ms).toISOString(), title: dateTime(event.at_ms) }, clock(event.at_ms));
  const element = el("li", { "data-kind": its, "data-code": event.code },
    el("i", { class: "sign", "aria-hidden": "true" }, sign),
    time,
    el("span", { class: "text" }, el("b", {}, subjectText(event.subject)), ` ${event.message}\u2002`, el("span", { class: "by" }, `by ${causeText(event.by)}`)),
    el("span", { class: "age dim" }));
  element.atMs = event.at_ms;
  mark(element, "data-by", event.by?.kind ?? null);
  return element;
}

function age() {
  const now = store.nowMs();
  for (const element of byId("event-list").children) say(element.lastElementChild, lasting(now - element.atMs));
}
