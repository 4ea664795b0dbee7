//! Dropped tables and their copies, until every node has deleted its own (PROTOCOL rule 26).

use crate::command::apply::entry::Entry;
use crate::command::refusals::{not_found, refused};
use crate::mutant::Mutant;
use crate::state::events::EventKind;
use crate::state::former_leaders::FormerLeader;
use crate::state::migration::{Migration, Stage};
use crate::state::response::Response;
use crate::state::{CONDEMNED_MAX, ClusterState};
use archon_types::{ErrorDetail, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PlacementId, TableId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Removes a table, its rows and everything recorded about them from the state, and condemns its copies.
pub(super) fn drop_table(state: &mut ClusterState, entry: Entry<'_>, table: TableId) -> Result<Response, ErrorDetail> {
    let Some(name) = state.tables.get(&table).map(|row| row.name.clone()) else {
        return Err(not_found(format!("table number {table} no longer exists")));
    };
    let copies = state.partitions.of_table(table).map(|row| row.placements.len()).sum::<usize>();
    let waiting = state.condemned.len();
    if waiting + copies > CONDEMNED_MAX {
        return Err(refused(format!(
            "{waiting} replicas of tables that were dropped earlier wait for their nodes to delete them, and table \
             {name} has \
             {copies} more; the limit is {CONDEMNED_MAX}: start the nodes that `archon status` names, or remove them"
        )));
    }
    let rows = state.partitions.remove_table(table);
    state.tables.remove(&table);
    state.controls.forget_table(table);
    if state.access.has_table(table) {
        Arc::make_mut(&mut state.access).forget_table(table);
        state.access_version = entry.version();
    }
    state.dropped_version = entry.version();
    let condemned_before = state.condemned.len();
    for row in &rows {
        condemn(state, row);
        withdraw(state, row);
        for placement in &row.placements {
            state.departed.remove(&placement.id);
        }
        state.untouched.remove(&row.id);
        state.surpassed.remove(&row.id);
    }
    let moves: Vec<Migration> = state.migrations.active_of(table).cloned().collect();
    let moves = supersede_moves(state, entry, &moves, &format!("table {name} was dropped"));
    let copies = u32::try_from(state.condemned.len() - condemned_before).unwrap_or(u32::MAX);
    let partitions = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    entry.note(state, EventKind::TableDropped { table, name, partitions, copies, moves });
    let nodes: BTreeSet<NodeId> = rows.iter().flat_map(|row| &row.placements).map(|placement| placement.node).collect();
    for node in nodes {
        let drained = state.node(node).is_some_and(|row| row.node.goal == NodeGoal::Drain);
        if drained && state.partitions.count_on(node) == 0 {
            entry.note(state, EventKind::NodeDrained { node });
        }
    }
    Ok(Response::TableDropped { table, copies })
}

/// Condemns every copy of the partition, whatever is in sync elsewhere: the command demands it. Copies on lost nodes
/// are gone, and fenced participants have nothing to delete.
fn condemn(state: &mut ClusterState, row: &Partition) {
    if state.breaks(Mutant::CondemnedForgotten) {
        return;
    }
    let split_off =
        row.split.iter().flat_map(|split| split.copies.iter().map(|copy| (copy.node, copy.id, split.right_of(row.id))));
    let placed = row.placements.iter().map(|placement| (placement.node, placement.id, row.id));
    for (node, placement, partition) in placed.chain(split_off) {
        if may_hold(state, node) {
            state.condemned.insert(node, placement, partition);
        }
    }
}

/// Returns true if the member may have something to delete: a node that is not lost, or a participant that is alive,
/// since participants hold only leases.
pub(crate) fn may_hold(state: &ClusterState, member: NodeId) -> bool {
    let over = state.participants.get(&member).is_some_and(|row| row.node.status != NodeStatus::Alive);
    !over && state.node(member).is_some_and(|row| row.node.status != NodeStatus::Lost)
}

/// Marks leaderships of the partition as lapsed, so that no lease covers them while their copy is not deleted.
fn withdraw(state: &mut ClusterState, row: &Partition) {
    let former: Vec<FormerLeader> = state.former_leaders.of_partition(row.id).copied().collect();
    for former in former {
        if state.condemned.contains(former.node, former.placement) {
            state.former_leaders.insert(FormerLeader { lapsed: true, ..former });
        } else {
            state.former_leaders.remove(former.partition, former.epoch);
        }
    }
    if state.breaks(Mutant::DroppedStillLed) {
        return;
    }
    if let Some(leader) = row.leader_placement().copied()
        && state.condemned.contains(leader.node, leader.id)
        && let Some(incarnation) = state.incarnation(leader.node)
    {
        let (partition, epoch, placement, node) = (row.id, row.epoch, leader.id, leader.node);
        let failure_timeout_ms = state.timing_of(node).failure_timeout_ms;
        let former = FormerLeader { partition, epoch, placement, node, incarnation, failure_timeout_ms, lapsed: true };
        state.former_leaders.insert(former);
    }
}

/// Removes a partition whose keys its neighbour took over, with everything recorded about it, and condemns its copies.
/// Returns their nodes.
pub(super) fn merge_away(state: &mut ClusterState, entry: Entry<'_>, partition: PartitionId) -> Vec<NodeId> {
    let name = state.partition_name(partition);
    let Some(row) = state.partitions.remove(partition) else { return Vec::new() };
    condemn(state, &row);
    withdraw(state, &row);
    for placement in &row.placements {
        state.departed.remove(&placement.id);
    }
    state.untouched.remove(&partition);
    state.surpassed.remove(&partition);
    state.controls.forget_partition(partition);
    let of_it = state.migrations.active_of(partition.table).filter(|migration| migration.partition == partition);
    let moves: Vec<Migration> = of_it.cloned().collect();
    supersede_moves(state, entry, &moves, &format!("partition {name} was merged into its neighbour"));
    row.placements.iter().map(|placement| placement.node).collect()
}

/// Marks moves as superseded. Returns their number.
fn supersede_moves(state: &mut ClusterState, entry: Entry<'_>, moves: &[Migration], why: &str) -> u32 {
    for migration in moves {
        let stage = Stage::Superseded { why: why.to_owned() };
        state.migrations.insert(Migration { stage, changed_at: entry.at, ..migration.clone() });
    }
    if !moves.is_empty() {
        state.moves_version = entry.version();
    }
    u32::try_from(moves.len()).unwrap_or(u32::MAX)
}

/// Records that a node deleted a copy of a dropped table.
pub(super) fn deleted(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    placement: PlacementId,
) -> Result<Response, ErrorDetail> {
    forget(state, node, placement);
    entry.done()
}

/// Drops the condemned copies of a node that is lost or forgotten.
pub(super) fn forget_node(state: &mut ClusterState, node: NodeId) {
    let copies: Vec<PlacementId> = state.condemned.on_node(node).map(|(placement, _)| placement).collect();
    for placement in copies {
        forget(state, node, placement);
    }
}

fn forget(state: &mut ClusterState, node: NodeId, placement: PlacementId) {
    let Some(partition) = state.condemned.remove(node, placement) else { return };
    let led = |former: &&FormerLeader| former.placement == placement;
    let ended: Vec<FormerLeader> = state.former_leaders.of_partition(partition).filter(led).copied().collect();
    for former in ended {
        state.former_leaders.remove(former.partition, former.epoch);
    }
}
