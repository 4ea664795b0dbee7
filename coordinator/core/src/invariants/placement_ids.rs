//! A placement number permanently stands for one copy of one partition on one node.

use super::splits::formed_on;
use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use archon_types::{NodeId, PartitionId, PlacementId};
use std::collections::BTreeMap;

const NAME: &str = "placement_ids";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    let mut seen = BTreeMap::new();
    for row in state.partitions.iter() {
        let split_off =
            row.split.iter().flat_map(|split| split.copies.iter().map(|copy| (copy.id, split.right_of(row.id))));
        for (id, partition) in row.placements.iter().map(|placement| (placement.id, row.id)).chain(split_off) {
            if id > state.placement_last {
                return violated(NAME, format!("{id} of {partition} is above the counter"));
            }
            if let Some(other) = seen.insert(id, partition) {
                return violated(NAME, format!("{id} stands in {other} and {partition}"));
            }
        }
    }
    Ok(())
}

/// Returns the node that reported a copy during a recovery which the state lacked.
fn told_of(before: &ClusterState, partition: PartitionId, placement: PlacementId) -> Option<NodeId> {
    let inventories = &before.recovery.as_ref()?.inventories;
    let told = inventories.iter().find(|(_, inventory)| {
        let standing = inventory.copies.get(&placement).copied().flatten();
        standing.is_some_and(|standing| standing.partition == partition)
    });
    told.map(|(node, _)| *node)
}

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if after.placement_last < before.placement_last {
        return violated(NAME, "the counter fell");
    }
    for row in after.partitions.iter() {
        for placement in row.placements.iter().filter(|placement| placement.id <= before.placement_last) {
            let known =
                before.partitions.get(row.id).and_then(|row| row.placement(placement.id)).map(|known| known.node);
            let known = known.or_else(|| formed_on(before, row.id, placement.id));
            let known = known.or_else(|| told_of(before, row.id, placement.id));
            if known != Some(placement.node) {
                return violated(NAME, format!("{} of {} was used before", placement.id, row.id));
            }
        }
        for copy in row.split.iter().flat_map(|split| &split.copies).filter(|copy| copy.id <= before.placement_last) {
            let split = before.partitions.get(row.id).and_then(|row| row.split.as_ref());
            let known = split.and_then(|split| split.copies.iter().find(|known| known.id == copy.id));
            if known.map(|known| known.node) != Some(copy.node) {
                return violated(NAME, format!("{}, which the split of {} forms, was used before", copy.id, row.id));
            }
        }
    }
    Ok(())
}
