// Dialogs: one frame for all, closed by Esc, by its button, or by a press beside it.

import { byId, el, say } from "./dom.js";

/** Opens the dialog with this id under a title, with this content; what was in it before is gone. */
export function openDialog(id, title, ...content) {
  const dialog = byId(id);
  say(dialog.querySelector("h2"), title);
  dialog.querySelector(".dialog-body").replaceChildren(...content);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

/** Makes all dialogs of the page close by a press beside them or on their button. */
export function dialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
    });
    dialog.addEventListener("close", () => dialog.querySelector(".dialog-body")?.replaceChildren());
  }
}

/** What went wrong, with what to do. */
export function refusalBox(refusal) {
  const remedy = refusal.remedy ? el("p", { class: "remedy" }, refusal.remedy) : null;
  return el("div", { class: "refusal", role: "alert", "data-code": refusal.code ?? "failed" }, el("p", {}, sentence(refusal.message)), remedy);
}

/** Messages of the cluster end without a full stop, as in a log. They begin as they are: often with a name. */
export const sentence = (text) => `${text ?? ""}${/[.!?…]$/.test(text ?? "") ? "" : "."}`;

let saidTimer = null;

/** Says what was done, for a while, below on the page. */
export function announce(text) {
  const said = byId("said");
  say(said, text);
  said.hidden = false;
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => (said.hidden = true), 8_000);
}
