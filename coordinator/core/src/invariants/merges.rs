//! A merge has two neighbours with agreeing rows; a partition of an existing table disappears only by a merge, which
//! leaves its keys to its left neighbour and orders the deletion of its copies.

use crate::command::apply::may_hold;
use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;

const NAME: &str = "merges";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    for row in state.partitions.iter() {
        if row.absorbed > row.version {
            return violated(NAME, format!("{} absorbed what is to come: {}", row.id, row.absorbed));
        }
        let Some(merge) = &row.merge else { continue };
        if row.split.is_some() || merge.attempt > row.version || !state.is_range(row.id.table) {
            return violated(NAME, format!("{}: {merge:?} cannot be", row.id));
        }
        let other = row.absorbs().or_else(|| row.yields()).and_then(|(_, other)| state.partitions.get(other));
        let Some(other) = other.filter(|other| other.merge.as_ref().is_some_and(|of| of.attempt == merge.attempt))
        else {
            return violated(NAME, format!("{}: {merge:?}, of which the neighbour knows nothing", row.id));
        };
        let absorbed = row.absorbed_range().filter(|_| other.yields().is_some_and(|(_, left)| left == row.id));
        let yielded = other.absorbed_range().filter(|_| other.absorbs().is_some_and(|(_, right)| right == row.id));
        if absorbed.as_ref() != Some(&other.range) && yielded.as_ref() != Some(&row.range) {
            return violated(NAME, format!("{} and {} do not agree on their merge", row.id, other.id));
        }
    }
    Ok(())
}

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    let there = |row: &archon_types::Partition| after.tables.contains_key(&row.id.table);
    if after.applied != before.applied + 1 {
        return Ok(()); // Nodes may have deleted copies in between, and the keys may have moved again.
    }
    for row in before.partitions.iter().filter(|row| there(row) && after.partitions.get(row.id).is_none()) {
        let Some((merge, left)) = row.yields() else {
            return violated(NAME, format!("{} vanished without a merge", row.id));
        };
        let widened = after.partitions.get(left).filter(|left| left.absorbed == merge.attempt);
        if widened.is_none_or(|left| left.range.end != row.range.end || left.merge.is_some()) {
            return violated(NAME, format!("no partition has the keys of {}", row.id));
        }
        for placement in &row.placements {
            if may_hold(after, placement.node) && !after.condemned.contains(placement.node, placement.id) {
                return violated(NAME, format!("no node has the duty to delete {} of {}", placement.id, row.id));
            }
        }
        if row.leader.is_some() && after.former_leaders.get(row.id, row.epoch).is_none() {
            return violated(NAME, format!("the leadership of {} in epoch {} is not withdrawn", row.id, row.epoch));
        }
    }
    Ok(())
}

/// Returns true if the partition was removed by a merge.
pub(super) fn merged_away(before: &ClusterState, after: &ClusterState, partition: archon_types::PartitionId) -> bool {
    let yielded = before.partitions.get(partition).is_some_and(|row| row.yields().is_some());
    yielded && after.partitions.get(partition).is_none() && after.tables.contains_key(&partition.table)
}
