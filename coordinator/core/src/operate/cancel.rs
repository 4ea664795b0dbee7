//! With which command an operator cancels what stands in his way.

use crate::state::ClusterState;
use archon_types::{Partition, PartitionId};

/// Cancels the moves that are under way.
pub(super) const CANCEL_MOVES: &str = "`archon rebalance cancel`";

/// What cancels the split of this partition.
pub(super) fn cancel_split(state: &ClusterState, left: PartitionId) -> String {
    format!("`archon partition split {} --cancel`", operand(state, left))
}

/// What cancels the merge that this partition takes part in: it is named after the one that gets the keys.
pub(super) fn cancel_merge(state: &ClusterState, row: &Partition) -> String {
    let left = row.yields().map_or(row.id, |(_, left)| left);
    format!("`archon partition merge {} --cancel`", operand(state, left))
}

/// A partition as verbs take it.
fn operand(state: &ClusterState, partition: PartitionId) -> String {
    match state.tables.get(&partition.table) {
        Some(table) => format!("{} --table {}", partition.index, table.name),
        None => partition.index.to_string(),
    }
}
