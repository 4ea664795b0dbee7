// Starts the parts of the page. Each shows one section of the feed.

import { appearance } from "./appearance.js";
import { onTheme } from "./colours.js";
import { dialogs } from "./dialog.js";
import { events } from "./events.js";
import { follow } from "./feed.js";
import { head } from "./head.js";
import { health } from "./health.js";
import { keyboard } from "./keyboard.js";
import { lines } from "./lines.js";
import { moves } from "./moves.js";
import { nodeMenu } from "./node_menu.js";
import { nodes } from "./nodes.js";
import { plan } from "./plan.js";
import { quorum } from "./quorum.js";
import { reshapings } from "./reshapings.js";
import { store } from "./store.js";
import { tables } from "./tables.js";

for (const start of [appearance, dialogs, keyboard, head, health, tables, lines, nodes, nodeMenu, moves, reshapings, plan, quorum, events]) start();
onTheme(() => store.touch("theme"));
// A server of another version has another page. An open dialog is not interrupted.
let version = null;
store.on(["hello"], () => {
  version ??= store.hello.version;
  if (version !== store.hello.version && !document.querySelector("dialog[open]")) location.reload();
});
// Ages advance without messages, too.
setInterval(() => store.touch("clock"), 1_000);
follow();
