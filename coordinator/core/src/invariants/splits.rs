//! A split concerns a partition of a table by ranges, at a key in its range; its copies stand beside copies of that
//! partition, and its number is unused.

use crate::command::apply::may_hold;
use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use archon_types::{NodeId, PartitionId, PlacementId, check_split_at};

const NAME: &str = "splits";

/// Returns the node on which a copy of this new partition is to be formed.
pub(super) fn formed_on(state: &ClusterState, partition: PartitionId, copy: PlacementId) -> Option<NodeId> {
    let splits = state.partitions.splitting().filter_map(|row| Some((row.id, row.split.as_ref()?)));
    let mut own = splits.filter(|(left, split)| split.right_of(*left) == partition);
    own.find_map(|(_, split)| split.copies.iter().find(|formed| formed.id == copy)).map(|formed| formed.node)
}

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    for row in state.partitions.iter() {
        let Some(split) = &row.split else { continue };
        let right = split.right_of(row.id);
        let numbered = state.tables.get(&row.id.table).is_some_and(|table| split.right < table.keys.numbers_end());
        if !numbered || state.partitions.get(right).is_some() {
            return violated(NAME, format!("{} is split into {right}, whose number is not its own", row.id));
        }
        if check_split_at(&row.range, &split.at).is_err() || split.attempt > row.version {
            return violated(NAME, format!("{}: {split:?} is no split of {:?}", row.id, row.range));
        }
        for copy in &split.copies {
            if row.placement_on(copy.node).is_none() || copy.id > state.placement_last {
                return violated(NAME, format!("{}: {copy:?} stands beside no copy", row.id));
            }
            if state.condemned.contains(copy.node, copy.id) {
                return violated(NAME, format!("{}: {copy:?} is to be formed and to be deleted", row.id));
            }
        }
        if split.formed() > 0 && split.position.is_none() {
            return violated(NAME, format!("{}: formed as of nowhere", row.id));
        }
    }
    Ok(())
}

/// No copy to be formed is forgotten: it goes on, belongs to the new partition, or its node has an order to delete it.
pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if after.applied != before.applied + 1 {
        return Ok(()); // Nodes may have deleted copies in between.
    }
    for row in before.partitions.splitting() {
        let Some(split) = &row.split else { continue };
        let right = split.right_of(row.id);
        let placed = |copy| after.partitions.get(right).is_some_and(|row| row.placement(copy).is_some());
        for copy in &split.copies {
            let known = formed_on(after, right, copy.id).is_some() || placed(copy.id);
            if !known && may_hold(after, copy.node) && !after.condemned.contains(copy.node, copy.id) {
                return violated(NAME, format!("no node has the duty to delete {copy:?} of {right}"));
            }
        }
    }
    Ok(())
}
