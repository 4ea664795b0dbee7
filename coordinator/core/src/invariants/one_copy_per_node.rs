//! Two copies of a partition never share a node, and the copies of a row are in order of their numbers.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use std::collections::BTreeSet;

const NAME: &str = "one_copy_per_node";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    for row in state.partitions.iter() {
        let nodes: BTreeSet<_> = row.placements.iter().map(|placement| placement.node).collect();
        if nodes.len() != row.placements.len() {
            return violated(NAME, format!("{} has two copies on a node: {:?}", row.id, row.placements));
        }
        if !row.placements.is_sorted_by_key(|placement| placement.id) {
            return violated(NAME, format!("the copies of {} are not in order: {:?}", row.id, row.placements));
        }
    }
    Ok(())
}
