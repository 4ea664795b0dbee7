// Menu of a node's orders, each of which is confirmed first.

import { nodeCheck, nodeOrder } from "../data/actions.js";
import { confirmOrder } from "../controls/confirm.js";
import { byId, el } from "../controls/dom.js";
import { counted } from "../data/format.js";
import { isParticipant, spaced } from "../data/words.js";

const ORDERS = {
  cordon: { label: "Cordon", about: (node) => `${node} keeps its replicas and receives no new ones.` },
  uncordon: { label: "Uncordon", about: (node) => `${node} may receive replicas again.` },
  drain: { label: "Drain", about: (node) => `${node} hands over all its replicas, which stay available.` },
  undrain: { label: "Undrain", about: (node) => `The drain of ${node} is cancelled, and it may receive replicas again.` },
};

/** Returns the orders that are possible for a node now. */
function ordersFor({ goal }) {
  if (goal === "drain") return ["undrain"];
  if (goal === "cordon") return ["drain", "uncordon"];
  return ["drain", "cordon"];
}

let opener = null;

/** Opens the menu of a node beside its button. */
export function openMenu(node, button) {
  const menu = byId("node-menu");
  opener = button;
  const item = (verb) => el("button", { type: "button", role: "menuitem", "data-action": verb, onclick: () => (menu.hidePopover(), ask(verb, node)) }, ORDERS[verb].label);
  menu.replaceChildren(el("p", { class: "menu-name" }, node.node), ...ordersFor(node).map(item));
  menu.setAttribute("aria-label", `Orders for ${node.node}`);
  menu.showPopover();
  const place = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const left = Math.max(8, Math.min(place.right - width, window.innerWidth - width - 8));
  const below = place.bottom + 4;
  const top = below + height > window.innerHeight ? Math.max(8, place.top - height - 4) : below;
  Object.assign(menu.style, { left: `${left}px`, top: `${top}px` });
  menu.querySelector("button")?.focus();
}

/** Moves the focus in the menu with the arrow keys. */
export function nodeMenu() {
  const menu = byId("node-menu");
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.querySelectorAll("button")];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (event.key === "Tab") menu.hidePopover();
    if (to === undefined) return;
    event.preventDefault();
    items.at(to >= items.length ? 0 : to)?.focus();
  });
  menu.addEventListener("toggle", (event) => {
    if (event.newState === "closed" && (document.activeElement === document.body || menu.contains(document.activeElement))) opener?.focus();
  });
}

function ask(verb, node) {
  const { label, about } = ORDERS[verb];
  confirmOrder({
    title: `${label} ${node.node}?`,
    label,
    about: about(node.node),
    order: () => nodeOrder(verb, node.node),
    check: verb === "drain" && !isParticipant(node) ? () => drainCheck(node.node) : null,
    done: (answer) => doneText(answer, verb, isParticipant(node) ? "lease" : "replica"),
  });
}

async function drainCheck(name) {
  const { drain } = await nodeCheck(name);
  const gains = drain.gains.slice(0, 6).map((gain) => `${gain.node} +${gain.copies_gained}`);
  if (drain.gains.length > gains.length) gains.push(`${drain.gains.length - gains.length} more`);
  const to = gains.length > 0 ? `: ${gains.join(", ")}` : "";
  const lines = [`${counted(drain.copies_moved, "replica")} and ${counted(drain.leaderships_moved, "leadership")} go to other nodes${to}.`];
  if (drain.zones_doubled > 0) lines.push(`${counted(drain.zones_doubled, "partition")} will have two replicas in one zone.`);
  return { lines, obstacles: drain.obstacles };
}

function doneText({ node, goal, copies_held: copies }, verb, what) {
  const held = copies === undefined || copies === null ? "" : `; it holds ${counted(copies, what)}`;
  return `${node}: ${verb} is ordered${goal ? `, its goal is ${spaced(goal)}` : ""}${held}.`;
}
