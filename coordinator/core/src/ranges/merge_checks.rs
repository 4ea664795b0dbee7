//! Checks of merges by operators.

use super::common_checks::{Reshape, check_copies, check_idle, check_nodes, ranged};
use crate::command::Command;
use crate::command::edit::{Edit, PartitionChange};
use crate::state::{CONDEMNED_MAX, ClusterState};
use archon_types::{ErrorDetail, ErrorKind, KeyRange, MERGE_BYTES_MAX, PartitionId, bytes_text};

/// Effect of merging a partition with its right neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergePlan {
    /// The partition to remove.
    pub right: PartitionId,
    /// The key range of the merged partition.
    pub keys: KeyRange,
    /// The command that begins the merge.
    pub command: Command,
}

/// Checks that a partition can be merged with its right neighbour, and returns the command that begins it. `bytes_of`
/// returns the size of a partition, as far as its nodes reported it.
///
/// # Errors
/// `NotFound`; `InvalidArgument` for a table with hashed keys; `AssignmentInProgress` while one of the two is being
/// split, merged or moved; `Unavailable` while one of them has no leader. `Refused` without a right neighbour; while a
/// copy is out of sync, a node is down or too many nodes are failed; if the right one is too large or both together
/// would be split again at once; and at a limit.
pub fn check_merge(
    state: &ClusterState,
    partition: PartitionId,
    bytes_of: impl Fn(PartitionId) -> Option<u64>,
) -> Result<MergePlan, ErrorDetail> {
    let refused = |message: String| Err(ErrorDetail::new(ErrorKind::Refused, message));
    let name = state.partition_name(partition);
    let (left, table) = ranged(state, partition, &name, Reshape::Merge)?;
    let Some(end) = &left.range.end else {
        let before =
            state.partitions.of_table(partition.table).find(|row| row.range.end.as_ref() == Some(&left.range.begin));
        return refused(match before.map(|row| state.partition_name(row.id)) {
            Some(before) => format!(
                "partition {name} has the last keys of its table and no right neighbour; to merge it into its left \
                 neighbour, merge {before}"
            ),
            None => format!("partition {name} is the only one of its table and has no neighbour"),
        });
    };
    let mut rows = state.partitions.of_table(partition.table);
    let Some(right) = rows.find(|row| row.range.begin == *end) else {
        return refused(format!("no partition begins where {name} ends"));
    };
    let right_name = state.partition_name(right.id);
    for (row, name) in [(left, &name), (right, &right_name)] {
        check_idle(state, row, name)?;
    }
    check_nodes(state, Reshape::Merge)?;
    for (row, name) in [(left, &name), (right, &right_name)] {
        check_copies(state, row, name, Reshape::Merge)?;
    }
    if let Some(bytes) = bytes_of(right.id).filter(|bytes| *bytes > MERGE_BYTES_MAX) {
        let why = too_large(&right_name, bytes);
        return refused(format!("{why}; overwritten rows are counted twice until their node counts again"));
    }
    let both = bytes_of(left.id).unwrap_or_default().saturating_add(bytes_of(right.id).unwrap_or_default());
    if let Some(most) = table.keys.limits().split_above_bytes.filter(|most| both > *most) {
        return refused(split_again(&table.name, (&name, &right_name), both, most));
    }
    if state.condemned.len() + right.placements.len() > CONDEMNED_MAX {
        return refused(format!(
            "{} replicas wait for their nodes to delete them; the limit is {CONDEMNED_MAX}",
            state.condemned.len()
        ));
    }
    let edit = Edit::Merge { right: right.id.index, right_version: right.version, undersized_bytes: None };
    Ok(MergePlan {
        right: right.id,
        keys: KeyRange { begin: left.range.begin.clone(), end: right.range.end.clone() },
        command: Command::Change(vec![PartitionChange::one(partition, left.version, edit)]),
    })
}

/// Returns the command that abandons the unfinished merge of this partition with its right neighbour, and the
/// neighbour.
///
/// # Errors
/// `NotFound`; `Refused` if it is not being merged, or is itself the right neighbour in a merge.
pub fn check_cancel_merge(state: &ClusterState, partition: PartitionId) -> Result<(PartitionId, Command), ErrorDetail> {
    let name = state.partition_name(partition);
    let (row, _) = ranged(state, partition, &name, Reshape::Merge)?;
    let Some((_, right)) = row.absorbs() else {
        let message = match row.yields() {
            Some((_, left)) => {
                let left = state.partition_name(left);
                format!("partition {name} is being merged into {left}: cancel the merge of {left}")
            }
            None => format!("partition {name} is not being merged: there is nothing to cancel"),
        };
        return Err(ErrorDetail::new(ErrorKind::Refused, message));
    };
    let edit = Edit::AbandonMerge("cancelled by an operator".to_owned());
    Ok((right, Command::Change(vec![PartitionChange::one(partition, row.version, edit)])))
}

/// Returns the reason why a partition of this size is not merged into another one.
pub(crate) fn too_large(name: &str, bytes: u64) -> String {
    format!(
        "partition {name} has {} or more; the limit for a merge into the left neighbour is {}: delete keys first",
        bytes_text(bytes),
        bytes_text(MERGE_BYTES_MAX)
    )
}

/// Returns the reason why two partitions that would be split again automatically are not merged.
fn split_again(table: &str, (name, right): (&str, &str), both: u64, most: u64) -> String {
    // In bytes, since two sizes that differ by little look the same in larger units.
    format!(
        "partitions {name} and {right} have about {both} bytes together, and table {table} splits partitions above \
         {most}: the result would be split again at once; raise the limit first, or remove it (archon table alter \
         {table} --split-above \
         none)"
    )
}
