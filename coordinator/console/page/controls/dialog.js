// Dialogs. Esc, the button, or a click outside closes them.

import { byId, el, say } from "./dom.js";

/** Opens the dialog with this id and replaces its title and content. */
export function openDialog(id, title, ...content) {
  const dialog = byId(id);
  say(dialog.querySelector("h2"), title);
  dialog.querySelector(".dialog-body").replaceChildren(...content);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

/** Makes a click outside or on the button close every dialog of the page. */
export function dialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
    });
    dialog.addEventListener("close", () => dialog.querySelector(".dialog-body")?.replaceChildren());
  }
}

/** Creates a box with a message and its remedy. */
export function refusalBox(refusal) {
  const remedy = refusal.remedy ? el("p", { class: "remedy" }, refusal.remedy) : null;
  return el("div", { class: "refusal", role: "alert", "data-code": refusal.code ?? "failed" }, el("p", {}, sentence(refusal.message)), remedy);
}

/** Adds a full stop: messages of the cluster end without one. They often begin with a name, so their first letter stays. */
export const sentence = (text) => `${text ?? ""}${/[.!?…]$/.test(text ?? "") ? "" : "."}`;

let saidTimer = null;

/** Shows a notice at the bottom of the page for some seconds. */
export function announce(text) {
  const said = byId("said");
  say(said, text);
  said.hidden = false;
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => (said.hidden = true), 8_000);
}
