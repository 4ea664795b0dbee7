// Head of the page: cluster, server of the page, leader, connection, and totals.

import { byId, mark, say } from "../controls/dom.js";
import { count, counted, lasting, short } from "../data/format.js";
import { store } from "../data/store.js";

export function head() {
  store.on(["hello", "status", "quorum", "connection", "trouble", "clock"], draw);
  store.on(["status", "nodes", "rebalance", "loads"], drawSums);
}

function draw() {
  const { hello, status } = store;
  const id = status?.cluster_id ?? "";
  say(byId("cluster"), id === "" ? (status ? "not created yet" : "…") : id.slice(0, 8));
  mark(byId("cluster"), "title", id || null);
  document.title = id === "" ? "Archon" : `${id.slice(0, 8)} · Archon`;
  const leader = store.quorum?.find((voter) => voter.role === "leader" && voter.error === null);
  const leads = status?.leader_id ?? leader?.id ?? null;
  say(byId("leads"), leads === null ? (status ? "none" : "…") : `coordinator ${leads}`);
  say(byId("term"), status ? count(status.term) : "…");
  // The coordinator's address in the cluster, which differs from that of the page.
  say(byId("served-by"), hello ? `the coordinator at ${hello.served_by}` : "…");
  mark(byId("served-by"), "title", hello ? `Archon ${hello.version}` : null);
  const may = hello ? (hello.may_change ? "" : ", read only") : "";
  say(byId("identity"), hello ? `${hello.identity ?? "anonymous"}${may}` : "…");
  drawConnection();
}

function drawConnection() {
  const element = byId("connection");
  const { connection, trouble, heardAtMs } = store;
  const state = connection === "live" && trouble !== null ? "old" : connection;
  const silent = heardAtMs === null ? null : Date.now() - heardAtMs;
  const words = {
    live: "live",
    old: /quorum|majority/i.test(trouble ?? "") ? "old: no quorum" : "old",
    connecting: "connecting…",
    reconnecting: silent === null ? "no connection yet…" : `reconnecting… ${silent >= 2_000 ? lasting(silent) : ""}`.trim(),
  }[state];
  mark(element, "data-state", state);
  mark(document.body, "data-state", state);
  say(element.querySelector("[data-word]"), words);
  mark(element, "title", trouble);
}

function drawSums() {
  const { status, rebalance } = store;
  const load = store.loads.at(-1);
  const whole = status && status.partitions_online === status.partitions_total;
  sum("sum-partitions", status && count(status.partitions_online), status ? `of ${count(status.partitions_total)} online` : "partitions", whole === false);
  sum("sum-copies", status && count(status.partitions_under_replicated), "with too few replicas", status?.partitions_under_replicated > 0);
  sum("sum-nodes", status && count(status.nodes_alive), status?.nodes_failed > 0 ? `alive, ${count(status.nodes_failed)} failed` : "nodes alive", status?.nodes_failed > 0);
  const moving = status?.moves_running ?? 0;
  const percent = rebalance?.running ? `, ${rebalance.summary.percent}%` : "";
  const reshapings = status?.reshapings_running ?? 0;
  const emptied = (store.nodes ?? []).filter((node) => node.goal === "drain" && node.copies_held > 0).length;
  const drains = emptied > 0 ? `, ${counted(emptied, "node")} being emptied` : "";
  const beside = reshapings > 0 ? `, ${counted(reshapings, "split or merge", "splits and merges")}` : "";
  sum("sum-moves", status && count(moving), `moves running${percent}${drains}${beside}`, false);
  const rate = load ? load.gets_per_second + load.puts_per_second : null;
  sum("sum-rate", short(rate), "operations / s", false);
}

function sum(id, number, words, bad) {
  const element = byId(id);
  say(element.firstElementChild, number ?? "–");
  say(element.lastElementChild, words ?? "");
  mark(element, "data-bad", bad === true);
}
