//! First assignment: round robin over the live nodes in order of registration.

use crate::command::{Command, Edit, PartitionChange};
use crate::liveness::Liveness;
use crate::state::{ClusterState, NodeRow};
use archon_types::{Millis, NodeId, Partition, Placement, PlacementId, ReplicaState};
use std::collections::BTreeMap;

/// Partitions assigned by one command, which is one log entry's worth.
const PARTITIONS_PER_COMMAND: usize = 512;

/// How many nodes there are to assign to, and how many a table of this replication waits for.
pub fn nodes_needed(state: &ClusterState, replication: u8) -> (u64, u64) {
    let have = state.nodes.takers_count() as u64;
    (have, u64::from(state.settings.nodes_min).max(u64::from(replication)))
}

/// Assigns up to `limit` partitions that have no copy yet. Replica r of partition p goes to node (p + r) mod n, or to
/// the next one that is not full, holds no copy of it, and stands in a zone that has none, as far as there is one.
/// Returns the commands and whether partitions are left for another turn.
pub(crate) fn assign(state: &ClusterState, liveness: &mut Liveness, now: Millis, limit: usize) -> (Vec<Command>, bool) {
    if state.partitions.unassigned().next().is_none() {
        return (Vec::new(), false);
    }
    let nodes: Vec<&NodeRow> = state.nodes.takers().collect();
    let mut counts: BTreeMap<NodeId, u32> =
        nodes.iter().map(|row| (row.node.id, state.partitions.count_on(row.node.id))).collect();
    let mut placement_last = liveness.placement_last.max(state.placement_last.get());
    let mut changes = Vec::new();
    let mut more = false;
    for row in state.partitions.unassigned() {
        let Some(table) = state.tables.get(&row.id.table) else { continue };
        let needed = u64::from(state.settings.nodes_min).max(u64::from(table.replication));
        if (nodes.len() as u64) < needed || !liveness.may_propose(row.id, row.version, now) {
            continue;
        }
        if changes.len() >= limit {
            more = true;
            break;
        }
        let Some(chosen) = choose(&nodes, &counts, row, table.replication) else { continue };
        let placements = chosen
            .into_iter()
            .map(|node| {
                *counts.entry(node).or_default() += 1;
                placement_last += 1;
                Placement { id: PlacementId::new(placement_last), node, state: ReplicaState::Live }
            })
            .collect();
        liveness.note_proposed(row.id, row.version, now);
        changes.push(PartitionChange::one(row.id, row.version, Edit::Assign(placements)));
    }
    liveness.placement_last = placement_last;
    let commands = changes.chunks(PARTITIONS_PER_COMMAND).map(|chunk| Command::Change(chunk.to_vec())).collect();
    (commands, more)
}

fn choose(nodes: &[&NodeRow], counts: &BTreeMap<NodeId, u32>, row: &Partition, replication: u8) -> Option<Vec<NodeId>> {
    let mut chosen: Vec<NodeId> = Vec::with_capacity(usize::from(replication));
    let mut zones: Vec<&str> = Vec::new();
    for replica in 0..usize::from(replication) {
        let start = usize::from(row.id.index) + replica;
        let candidate = |distinct: bool| {
            (0..nodes.len()).map(|step| &nodes[(start + step) % nodes.len()].node).find(|node| {
                let full = node.partitions_max.is_some_and(|max| counts.get(&node.id).is_some_and(|n| *n >= max));
                let zone_taken = node.zone.as_deref().is_some_and(|zone| zones.contains(&zone));
                let holds = chosen.contains(&node.id) || row.placement_on(node.id).is_some();
                !full && !holds && (!distinct || !zone_taken)
            })
        };
        let node = candidate(true).or_else(|| candidate(false))?;
        chosen.push(node.id);
        zones.extend(node.zone.as_deref());
    }
    Some(chosen)
}
