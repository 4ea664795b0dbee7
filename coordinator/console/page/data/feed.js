// Stream of changes of the cluster. The browser reconnects after most failures, and this module after all others.

import { store } from "./store.js";

/** Silence after which the connection is considered dead. */
const SILENT_MS = 30_000;
/** Limit while the cluster does not answer the server, which then sends less. */
const SILENT_IN_TROUBLE_MS = 120_000;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 15_000;

const SECTIONS = {
  hello: (hello) => store.greet(hello),
  status: (status) => store.set("status", status),
  nodes: (nodes) => store.set("nodes", nodes),
  nodes_change: (change) => store.changeNodes(change),
  tables: (tables) => store.setTables(tables),
  rebalance: (rebalance) => store.set("rebalance", rebalance),
  events: (events) => store.set("events", events),
  quorum: (quorum) => store.set("quorum", quorum),
  load: (load) => store.addLoad(load),
  map: (map) => store.setMap(map),
  map_change: (change) => store.changeMap(change),
  gone: ({ table_id: table }) => store.dropMap(table),
  // A keepalive without content.
  tick: () => {},
  trouble: ({ message }) => store.set("trouble", message),
};

let source = null;
let retryMs = RETRY_MIN_MS;
let retryTimer = null;

/** Opens the feed and keeps it open until the page is closed. */
export function follow() {
  open();
  setInterval(watch, 5_000);
  // After sleep or without network, reconnect at once.
  window.addEventListener("online", () => reopen(0));
}

function open() {
  retryTimer = null;
  source?.close();
  const opened = (source = new EventSource("api/v1/feed"));
  for (const [section, take] of Object.entries(SECTIONS)) {
    opened.addEventListener(section, (event) => {
      if (opened !== source) return;
      heard();
      try {
        take(JSON.parse(event.data));
      } catch (error) {
        // Skip an unreadable section: the next complete document follows soon.
        console.error(`feed: ${section} cannot be read`, error);
      }
    });
  }
  opened.addEventListener("error", () => {
    if (opened !== source) return;
    state("reconnecting");
    // After an answer that is no stream, such as 503, the browser does not reconnect.
    if (opened.readyState === EventSource.CLOSED) reopen(retryMs);
  });
}

function heard() {
  store.heardAtMs = Date.now();
  retryMs = RETRY_MIN_MS;
  state("live");
}

function state(connection) {
  if (store.connection !== connection) store.set("connection", connection);
}

function reopen(afterMs) {
  clearTimeout(retryTimer);
  retryTimer = setTimeout(open, afterMs);
  retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
}

/** Closes silent connections: one that the network has lost may stay open for hours. */
function watch() {
  if (retryTimer !== null || store.heardAtMs === null || store.connection !== "live") return;
  const limit = store.trouble === null ? SILENT_MS : SILENT_IN_TROUBLE_MS;
  if (Date.now() - store.heardAtMs < limit) return;
  state("reconnecting");
  store.heardAtMs = Date.now();
  reopen(0);
}
