//! Commands that cancel a blocking operation.

use crate::state::ClusterState;
use archon_types::{Partition, PartitionId};

/// Cancels the moves in progress.
pub(crate) const CANCEL_MOVES: &str = "`archon rebalance cancel`";

/// Returns the command that cancels the split of this partition.
pub(crate) fn cancel_split(state: &ClusterState, left: PartitionId) -> String {
    format!("`archon partition split {} --cancel`", operand(state, left))
}

/// Returns the command that cancels the merge of this partition: it names the partition that gets the keys.
pub(crate) fn cancel_merge(state: &ClusterState, row: &Partition) -> String {
    let left = row.yields().map_or(row.id, |(_, left)| left);
    format!("`archon partition merge {} --cancel`", operand(state, left))
}

/// Formats a partition as an operand of a command.
fn operand(state: &ClusterState, partition: PartitionId) -> String {
    match state.tables.get(&partition.table) {
        Some(table) => format!("{} --table {}", partition.index, table.name),
        None => partition.index.to_string(),
    }
}
