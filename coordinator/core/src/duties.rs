//! What a node should do, and what a holder of an older table lacks: both derived from state whenever they are asked
//! for, so that nothing needs to be remembered in a queue.

use crate::migrate::hands_over;
use crate::state::ClusterState;
use archon_types::{Duty, ErrorDetail, ErrorKind, NodeId, PartitionStatus, ReplicaState, TableDelta, TableId, Version};

/// The full list of a node's duties, by partition, or `None` while the node must be told nothing: it is not live, or has
/// not said yet that it stored its present incarnation. An empty list is not the same: it tells a node to host nothing.
pub fn duties(state: &ClusterState, node: NodeId) -> Option<Vec<Duty>> {
    if !state.is_active(node) {
        return None;
    }
    let duties = state.partitions.on_node(node).filter_map(|row| {
        let placement = row.placement_on(node)?;
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
    Some(duties.collect())
}

/// The rows of a table newer than `since`, with the nodes newer than it; `None` if there is no such table. Version zero
/// asks for everything.
pub fn delta(state: &ClusterState, table: TableId, since: Version) -> Option<TableDelta> {
    let row = state.tables.get(&table)?.clone();
    let nodes = if state.nodes_version > since {
        state.nodes.values().map(|row| &row.node).filter(|node| node.version > since).cloned().collect()
    } else {
        Vec::new()
    };
    Some(TableDelta {
        since,
        version: state.version_of(table),
        partitions: state.partitions.newer_than(table, since).cloned().collect(),
        nodes,
        table: row,
    })
}

/// Whether the table has been assigned, so that it can be used at all.
///
/// # Errors
/// `NotFound` for an unknown table; `NotEnoughNodes {have, need}` while its first assignment waits for nodes;
/// `Unavailable` while it is just about to happen.
pub fn table_ready(state: &ClusterState, table: TableId) -> Result<(), ErrorDetail> {
    let Some(row) = state.tables.get(&table) else {
        return Err(ErrorDetail::new(ErrorKind::NotFound, format!("there is no table {table}")));
    };
    let assigned = |row: &archon_types::Partition| row.status != PartitionStatus::Unassigned;
    if state.partitions.of_table(table).any(assigned) {
        return Ok(());
    }
    let (have, need) = crate::assign::nodes_needed(state, row.replication);
    if have < need {
        let message = format!("table {:?} waits for nodes to register", row.name);
        return Err(ErrorDetail::new(ErrorKind::NotEnoughNodes, message)
            .with_have_need(have, need)
            .with_retry_after_ms(200));
    }
    let message = format!("table {:?} is just being assigned", row.name);
    Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(50))
}
