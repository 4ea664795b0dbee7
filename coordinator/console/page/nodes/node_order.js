// Selection and order of the listed nodes.

import { nodeWords } from "../data/words.js";

const LEVELS = { lost: 0, failed: 1, alive: 3 };
const level = (node) => (node.status === "alive" && node.goal !== "serve" ? 2 : (LEVELS[node.status] ?? 0));
const number = (value) => value ?? -1;
const names = new Intl.Collator("en", { numeric: true });

/** Comparisons by column: the largest number first, the worst status first. */
const COLUMNS = {
  name: () => 0,
  status: (left, right) => level(left) - level(right) || nodeWords(left).localeCompare(nodeWords(right)),
  zone: (left, right) => names.compare(left.zone ?? "\uffff", right.zone ?? "\uffff"),
  led: (left, right) => right.partitions_led - left.partitions_led,
  copies: (left, right) => right.copies_held - left.copies_held,
  rate: (left, right) => number(right.operations_per_second) - number(left.operations_per_second),
  data: (left, right) => number(right.bytes_stored) - number(left.bytes_stored),
  silent: (left, right) => number(right.silent_for_ms) - number(left.silent_for_ms),
};

/** Returns a sorted copy of the list; equal nodes are sorted by name. */
export function sorted(nodes, column, reversed) {
  const compare = COLUMNS[column];
  const sign = reversed ? -1 : 1;
  return [...nodes].sort((left, right) => sign * compare(left, right) || (column === "name" ? sign : 1) * names.compare(left.node, right.node));
}

/** Returns the nodes with all words of the filter in their name, zone, status, address or tables. */
export function filtered(nodes, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return nodes;
  return nodes.filter((node) => {
    const text = `${node.node} ${node.zone ?? ""} ${nodeWords(node)} ${node.address} ${(node.serves ?? []).join(" ")}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** Returns the previous order while the user points at the list: the row under the pointer must not change. */
export function held(nodes, before) {
  const there = new Map(nodes.map((node) => [node.node_id, node]));
  const kept = before.filter((node) => there.delete(node.node_id) || false).map((node) => node.node_id);
  const all = new Map(nodes.map((node) => [node.node_id, node]));
  return [...kept.map((id) => all.get(id)), ...there.values()];
}
