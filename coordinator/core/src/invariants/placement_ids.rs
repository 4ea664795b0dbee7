//! A placement number stands for one copy of one partition on one node, for ever.

use super::{Violation, violated};
use crate::state::ClusterState;
use std::collections::BTreeMap;

const NAME: &str = "placement_ids";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    let mut seen = BTreeMap::new();
    for row in state.partitions.iter() {
        for placement in &row.placements {
            if placement.id > state.placement_last {
                return violated(NAME, format!("{} of {} is above the counter", placement.id, row.id));
            }
            if let Some(other) = seen.insert(placement.id, row.id) {
                return violated(NAME, format!("{} stands in {other} and {}", placement.id, row.id));
            }
        }
    }
    Ok(())
}

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if after.placement_last < before.placement_last {
        return violated(NAME, "the counter fell");
    }
    for row in after.partitions.iter() {
        for placement in row.placements.iter().filter(|placement| placement.id <= before.placement_last) {
            let known = before.partitions.get(row.id).and_then(|row| row.placement(placement.id));
            if known.is_none_or(|known| known.node != placement.node) {
                return violated(NAME, format!("{} of {} was used before", placement.id, row.id));
            }
        }
    }
    Ok(())
}
