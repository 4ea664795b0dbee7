// A command line to look at and to copy.

import { el, say } from "./dom.js";

/** How long the button says that it copied. */
const SAID_MS = 2_000;

/** The command in a frame with a button; `set` puts another command in. */
export function commandBox(command) {
  const text = el("code", {}, command);
  const button = el("button", { type: "button", class: "quiet copy" }, "Copy");
  button.setAttribute("aria-label", `Copy the command ${command}`);
  button.addEventListener("click", async () => {
    say(button, (await copy(text)) ? "Copied" : "Marked");
    setTimeout(() => say(button, "Copy"), SAID_MS);
  });
  const set = (other) => {
    say(text, other);
    button.setAttribute("aria-label", `Copy the command ${other}`);
  };
  return { element: el("div", { class: "command" }, text, button), set };
}

/** Browsers give the clipboard only to pages of TLS or of this machine: elsewhere the text is marked, to be copied by keys. */
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return false;
  }
}
