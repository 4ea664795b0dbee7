//! Epochs, versions, incarnations and counters only rise; a row that changed has a newer version; leadership changes
//! only with the epoch.

use super::merges::merged_away;
use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;

const NAME: &str = "monotone";

pub(super) fn check(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    for row in before.partitions.iter() {
        let Some(later) = after.partitions.get(row.id) else {
            if !after.tables.contains_key(&row.id.table) || merged_away(before, after, row.id) {
                continue; // Its table was dropped, or its neighbour has its keys.
            }
            return violated(NAME, format!("{} vanished", row.id));
        };
        if later.epoch < row.epoch || later.version < row.version {
            return violated(NAME, format!("{} went back: {row:?} to {later:?}", row.id));
        }
        if later != row && later.version == row.version {
            return violated(NAME, format!("{} changed without a new version: {row:?} to {later:?}", row.id));
        }
        if later.leader != row.leader && later.epoch == row.epoch {
            return violated(NAME, format!("{} changed its leader within epoch {}", row.id, row.epoch));
        }
    }
    for (id, row) in before.nodes.iter().chain(before.participants.iter()) {
        let Some(later) = after.node(*id) else { continue };
        if later.node.incarnation < row.node.incarnation || later.node.version < row.node.version {
            return violated(NAME, format!("node {id} went back: {row:?} to {later:?}"));
        }
        if later.node != row.node && later.node.version == row.node.version {
            return violated(NAME, format!("node {id} changed without a new version"));
        }
        if later.activated < row.activated {
            return violated(NAME, format!("the activation of node {id} went back"));
        }
    }
    let counters = |state: &ClusterState| {
        [
            state.node_last.get(),
            state.table_last.get(),
            state.migration_last,
            state.applied,
            state.nodes_version.get(),
            state.removed_version.get(),
            state.participants_version.get(),
            state.participants_removed_version.get(),
            state.dropped_version.get(),
            state.settings_version.get(),
            state.access_version.get(),
            state.moves_version.get(),
            state.controls_version.get(),
            state.activated_version.get(),
        ]
    };
    if counters(before).iter().zip(counters(after)).any(|(before, after)| *before > after) {
        return violated(NAME, "a counter fell");
    }
    if after.table_version() < before.table_version() {
        return violated(NAME, "the table version fell");
    }
    Ok(())
}
