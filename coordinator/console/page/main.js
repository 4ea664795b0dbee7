// Starts the parts of the page. Each shows one section of the feed.

import { appearance } from "./controls/appearance.js";
import { onTheme } from "./controls/colours.js";
import { dialogs } from "./controls/dialog.js";
import { events } from "./cluster/events.js";
import { follow } from "./data/feed.js";
import { head } from "./cluster/head.js";
import { health } from "./cluster/health.js";
import { keyboard } from "./controls/keyboard.js";
import { lines } from "./cluster/lines.js";
import { moves } from "./moves/moves.js";
import { nodeMenu } from "./nodes/node_menu.js";
import { nodes } from "./nodes/nodes.js";
import { plan } from "./moves/plan.js";
import { quorum } from "./cluster/quorum.js";
import { reshapings } from "./moves/reshapings.js";
import { store } from "./data/store.js";
import { tables } from "./tables/tables.js";

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
