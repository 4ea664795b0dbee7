// Keyboard shortcuts of the page. Text typed into a field is no shortcut.

import { byId } from "./dom.js";

const SECTIONS = { g: "partitions", n: "nodes", m: "moves", e: "events", l: "load", c: "quorum" };

export function keyboard() {
  byId("help-open").addEventListener("click", openHelp);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.("input, select, textarea")) {
      if (event.key === "Escape") leaveField(event.target);
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "?") openHelp();
    else if (event.key === "/") filterHere().focus();
    else if (SECTIONS[event.key]) jump(SECTIONS[event.key]);
    else return;
    event.preventDefault();
  });
}

function openHelp() {
  const help = byId("help");
  if (!help.open) help.showModal();
}

/** Esc clears a filter first, and then leaves it. */
function leaveField(field) {
  if (field.type !== "search" || field.value === "") {
    field.blur();
    return;
  }
  field.value = "";
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Returns the filter of the current section, or that of the nodes. */
const filterHere = () => (document.activeElement?.closest("#events") ? byId("event-filter") : byId("node-filter"));

function jump(section) {
  const target = byId(section);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  target.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
  (target.querySelector(".cells") ?? target.querySelector("h2")).focus({ preventScroll: true });
}
