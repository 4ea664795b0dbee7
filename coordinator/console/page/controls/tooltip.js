// Tooltip: a box that describes the element under the pointer.

import { byId, say } from "./dom.js";

/** Shows `text` beside a point, within the window. */
export function showTip(text, x, y) {
  const tip = byId("tip");
  say(tip, text);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - width - 8);
  const top = y + 18 + height > window.innerHeight ? y - height - 10 : y + 18;
  tip.style.transform = `translate(${Math.max(4, Math.round(left))}px, ${Math.max(4, Math.round(top))}px)`;
}

export function hideTip() {
  byId("tip").hidden = true;
}
