//! Duties of nodes, and deltas for holders of older tables: both derived from state on demand, so that no queue is
//! needed.

use crate::mutant::Mutant;
use crate::placement::migrate::hands_over;
use crate::placement::out_of_sync::{delete_not_issued, is_lost, may_issue_delete};
use crate::state::ClusterState;
use crate::state::recovery::Inventory;
use archon_types::{
    Duty, ErrorDetail, ErrorKind, NodeDelta, NodeId, PartitionStatus, ReplicaState, TableId, TablePiece, Version,
    node_bytes,
};
use std::collections::BTreeSet;

/// Maximum number of condemned copies in one list of duties; the others follow when these are deleted. A copy without a
/// duty is not served either.
const CONDEMNED_AT_ONCE: usize = 4_096;

/// Returns the full list of a node's duties, by partition and last those about dropped tables, or `None` while the node
/// must get no list: it is not alive, or has not confirmed that it stored its present incarnation. An empty list
/// differs: it orders a node to host nothing.
///
/// No duty names a copy that was lost or damaged, so its node keeps it as it is: if it were hosted, a leader would
/// empty it to copy it again. Nor does one name a copy that must not be deleted at this moment.
pub fn duties(state: &ClusterState, node: NodeId) -> Option<Vec<Duty>> {
    if !state.is_active(node) {
        return None;
    }
    if let Some(inventory) = inventory(state, node) {
        return Some(inventory.copies.keys().map(|placement| Duty::Inspect { placement: *placement }).collect());
    }
    let duties = state.partitions.on_node(node).filter_map(|row| {
        let placement = row.placement_on(node)?;
        let kept = match placement.state {
            ReplicaState::Unload => delete_not_issued(state, placement) || !may_issue_delete(state, row),
            ReplicaState::Load => is_lost(state, placement.id) && !state.breaks(Mutant::LostCopyHosted),
            ReplicaState::Live => false,
        };
        if kept {
            return None; // rule 22
        }
        Some(match placement.state {
            ReplicaState::Unload => Duty::Unload { partition: row.id, placement: placement.id },
            ReplicaState::Load | ReplicaState::Live => match hands_over(state, row) {
                Some(to) if row.leader == Some(placement.id) => {
                    Duty::HandOver { partition: row.clone(), placement: placement.id, to }
                }
                _ => Duty::Host { partition: row.clone(), placement: placement.id },
            },
        })
    });
    let condemned = state.condemned.on_node(node).take(CONDEMNED_AT_ONCE);
    let condemned = condemned.map(|(placement, partition)| Duty::Unload { partition, placement });
    Some(duties.chain(condemned).collect())
}

/// Returns the node's inventory during a recovery: it hosts nothing meanwhile.
fn inventory(state: &ClusterState, node: NodeId) -> Option<&Inventory> {
    state.recovery.as_ref()?.inventories.get(&node)
}

/// Inputs of a node's duties. As long as it is equal, the duties are, and need not be derived again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DutiesMark {
    rows: u64,
    copies: u32,
    /// Number of condemned copies, and the last drop if there are any.
    condemned: Option<(usize, Version)>,
    /// Versions of members, moves and orders, if leaderships of this node are to be handed over or copies to be
    /// deleted.
    others: Option<(Version, Version, Version)>,
    /// It only reports its copies.
    inspects: bool,
}

/// Returns the mark of a node's duties, or `None` while it must get none, like [`duties`].
pub fn duties_mark(state: &ClusterState, node: NodeId) -> Option<DutiesMark> {
    let row = state.node(node).filter(|row| row.is_active())?;
    if inventory(state, node).is_some() {
        return Some(DutiesMark { rows: 0, copies: 0, condemned: None, others: None, inspects: true });
    }
    let (leaves, barred) = (row.node.goal.gives_up_leaderships(), state.bars_any(node));
    let ends = state.ending().next().is_some();
    let hands_over = leaves || barred || ends || state.migrations.any_running_from(node);
    let unloads = state.partitions.held_on(node) < state.partitions.count_on(node);
    let condemned = state.condemned.count_on(node);
    Some(DutiesMark {
        inspects: false,
        condemned: (condemned > 0).then_some((condemned, state.dropped_version)),
        rows: state.partitions.mark_of(node),
        copies: state.partitions.count_on(node),
        others: (hands_over || unloads).then(|| (state.lives_version(), state.moves_version, state.controls_version)),
    })
}

/// Returns the members that lead a partition and are to give it up although no other member is named for it. They change with
/// `controls_version` and with rows.
pub fn under_orders(state: &ClusterState) -> BTreeSet<NodeId> {
    let leader = |partition| state.partitions.get(partition)?.leader_placement().map(|leader| leader.node);
    state.ending().filter_map(leader).collect()
}

/// Returns the nodes newer than `since`, oldest change first and about `bytes_max` of them: the delta's version marks
/// its end. Every part names the removed nodes, as far as they are known here.
pub fn nodes_delta(state: &ClusterState, since: Version, bytes_max: usize) -> NodeDelta {
    let mut delta = NodeDelta { since, version: since, nodes: Vec::new(), removed: state.removed_since(since) };
    let mut bytes = 0;
    for node in state.nodes.newer_than(since).map(|row| &row.node) {
        // Nodes of one version stay together.
        if bytes >= bytes_max && node.version > delta.version {
            return delta;
        }
        bytes += node_bytes(node);
        delta.version = node.version;
        delta.nodes.push(node.clone());
    }
    delta.version = delta.version.max(state.nodes_version);
    delta
}

/// Returns the piece at `from` of a table's rows newer than `since`, for a holder that gets the nodes by
/// [`nodes_delta`]; `None` if there is no such table. Version zero asks for all rows.
pub fn rows_piece(state: &ClusterState, table: TableId, since: Version, from: u64) -> Option<TablePiece> {
    let (row, version) = (state.tables.get(&table)?.clone(), state.version_of(table));
    let rows = state.partitions.newer_than(table, since);
    Some(TablePiece::cut(row, since, version, rows, std::iter::empty(), None, from))
}

/// Like [`rows_piece`], with the nodes newer than `since`.
pub fn table_piece(state: &ClusterState, table: TableId, since: Version, from: u64) -> Option<TablePiece> {
    let (row, version) = (state.tables.get(&table)?.clone(), state.version_of(table));
    let rows = state.partitions.newer_than(table, since);
    let members = state.members_of(table).newer_than(since).map(|row| &row.node);
    Some(TablePiece::cut(row, since, version, rows, members, state.removed_of_since(table, since), from))
}

/// Checks that the table has been assigned, so that it can be used at all.
///
/// # Errors
/// `NotFound` for an unknown table; `NotEnoughNodes {have, need}` while its first assignment waits for nodes;
/// `Unavailable` while it is just about to happen.
pub fn table_ready(state: &ClusterState, table: TableId) -> Result<(), ErrorDetail> {
    let Some(row) = state.tables.get(&table) else {
        return Err(ErrorDetail::new(ErrorKind::NotFound, format!("there is no table {table}")));
    };
    if row.holds == archon_types::TableContent::Lease {
        return Ok(()); // Callers must learn that a partition has no owner.
    }
    let assigned = |row: &archon_types::Partition| row.status != PartitionStatus::Unassigned;
    if state.partitions.of_table(table).any(assigned) {
        return Ok(());
    }
    let (have, need) = crate::placement::assign::nodes_needed(state, row.replication);
    if have < need {
        let message = format!("table {:?} waits for nodes to register", row.name);
        return Err(ErrorDetail::new(ErrorKind::NotEnoughNodes, message)
            .with_have_need(have, need)
            .with_retry_after_ms(200));
    }
    let message = format!("table {:?} is just being assigned", row.name);
    Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(50))
}
