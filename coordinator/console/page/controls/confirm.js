// Asks for confirmation before a change. Shows the effect and the equivalent command.

import { commandBox } from "./command.js";
import { announce, openDialog, refusalBox } from "./dialog.js";
import { el, say } from "./dom.js";
import { store } from "../data/store.js";

/**
 * Asks for confirmation of an order. `about` is a sentence about its effect; `order(fields)` returns `{command, run}`; the optional
 * `check` requests the effect from the cluster and returns `{lines, obstacles}`; `fields` are inputs, `{name, label}`; `done` returns
 * a sentence about the answer.
 */
export function confirmOrder({ title, about, label, order, check = null, fields = [], done }) {
  const inputs = fields.map(({ name, label: text, hint }) =>
    el("label", { class: "field" }, el("span", {}, text), el("input", { name, type: "text", maxlength: 200, placeholder: hint ?? "", autocomplete: "off" })),
  );
  const body = () => Object.fromEntries(inputs.map((input) => [input.lastChild.name, input.lastChild.value.trim()]));
  const command = commandBox(order(body()).command);
  const outcome = el("div", { class: "outcome", "aria-live": "polite" });
  const button = el("button", { type: "submit", class: "primary", "data-action": "confirm" }, label);
  const close = el("button", { type: "button", class: "quiet", "data-close": true }, "Not now");
  const form = el("form", { method: "dialog" }, el("p", {}, about), ...inputs, outcome);
  form.append(el("p", { class: "dim same" }, "The same on the command line:"), command.element, el("div", { class: "buttons" }, close, button));
  form.addEventListener("input", () => command.set(order(body()).command));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    say(button, "Asking …");
    try {
      const answer = await order(body()).run();
      dialog.close();
      announce(done(answer));
    } catch (refusal) {
      outcome.replaceChildren(refusalBox(refusal));
      button.disabled = false;
      say(button, label);
    }
  });
  const dialog = openDialog("confirm", title, form);
  // The focus goes to the cancelling button: an Enter from the menu that is held too long must not confirm.
  (inputs[0]?.lastChild ?? close).focus();
  if (!store.hello?.may_change) button.disabled = true;
  if (check) look(check, outcome, button);
}

/** Shows the effect. The order is possible while the effect is unknown, and disabled if there are obstacles. */
async function look(check, outcome, button) {
  outcome.replaceChildren(el("p", { class: "dim" }, "Computing the effect …"));
  try {
    const { lines, obstacles } = await check();
    outcome.replaceChildren(el("ul", {}, ...lines.map((line) => el("li", {}, line))));
    if (obstacles.length === 0) return;
    button.disabled = true;
    outcome.append(el("div", { class: "refusal" }, el("p", {}, "It is not possible now:"), el("ul", {}, ...obstacles.map((text) => el("li", {}, text)))));
  } catch (refusal) {
    outcome.replaceChildren(refusalBox(refusal));
  }
}
