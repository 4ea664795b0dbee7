// Box with a command line and a button that copies it.

import { el, say } from "./dom.js";

/** Time for which the button shows that it has copied. */
const SAID_MS = 2_000;

/** Creates the box; `set` replaces the command. */
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

/** Browsers restrict the clipboard to pages with TLS or from loopback. On others the text is selected, and the user copies it with the keyboard. */
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return false;
  }
}
