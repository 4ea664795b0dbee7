// Fair share of each member in partitions and load, by weight.

import { isParticipant } from "../data/words.js";

/** Returns whether a member has a share: it is alive, and neither drained nor in maintenance. */
const takesPart = (node) => node.status === "alive" && node.goal !== "drain" && node.goal !== "maintain";

/** Groups members that share the same partitions: all nodes, and participants that serve the same tables. */
const groupOf = (node) => (isParticipant(node) ? [...node.serves].sort().join("\u0000") : "");

/** Returns the fair numbers by member id: `{led, copies, loadPercent}`; null where it has no share. */
export function fairShares(nodes) {
  const groups = new Map();
  for (const node of nodes) {
    const key = groupOf(node);
    const group = groups.get(key) ?? { weights: 0, led: 0, copies: 0, operations: 0 };
    if (takesPart(node)) group.weights += node.weight;
    group.led += node.partitions_led;
    group.copies += node.copies_held;
    group.operations += node.operations_per_second ?? 0;
    groups.set(key, group);
  }
  const shares = new Map();
  for (const node of nodes) {
    const group = groups.get(groupOf(node));
    const part = takesPart(node) && group.weights > 0 ? node.weight / group.weights : null;
    const rate = node.operations_per_second;
    const fairRate = part === null ? null : group.operations * part;
    shares.set(node.node_id, {
      led: part === null ? null : group.led * part,
      copies: part === null ? null : group.copies * part,
      loadPercent: fairRate === null || rate === null ? null : fairRate === 0 ? 0 : (rate / fairRate) * 100,
    });
  }
  return shares;
}
