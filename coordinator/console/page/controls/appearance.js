// Theme: dark, light, or that of the system. It is stored if the browser allows it.

import { byId, mark, say } from "./dom.js";

const CHOICES = ["auto", "light", "dark"];
const KEY = "archon-theme";

export function appearance() {
  const button = byId("theme");
  const show = () => {
    const theme = document.documentElement.dataset.theme ?? "auto";
    say(button.querySelector("[data-word]"), theme);
    mark(button, "data-choice", theme);
    mark(button, "aria-label", `Theme: ${theme}. Change it.`);
  };
  button.addEventListener("click", () => {
    const now = CHOICES.indexOf(document.documentElement.dataset.theme ?? "auto");
    choose(CHOICES[(now + 1) % CHOICES.length]);
    show();
  });
  show();
}

function choose(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Without storage, it lasts until the page is closed.
  }
}
