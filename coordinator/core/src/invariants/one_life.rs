//! Checks that names and data directories of members are unique, and addresses of live nodes too; and that former
//! leaders led in earlier epochs.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use archon_types::NodeStatus;
use std::collections::BTreeSet;

const NAME: &str = "one_life";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    let (mut names, mut addresses, mut storages) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for row in state.members() {
        if row.node.status != NodeStatus::Lost && !names.insert(&row.node.name) {
            return violated(NAME, format!("two members are named {}", row.node.name));
        }
        let is_node = row.participant.is_none();
        if is_node && row.node.status == NodeStatus::Alive && !addresses.insert(&row.node.address) {
            return violated(NAME, format!("two live nodes have the address {}", row.node.address));
        }
        if !storages.insert(row.storage) {
            return violated(NAME, format!("two members have storage {}", row.storage));
        }
        if row.activated.is_some_and(|activated| activated > row.node.incarnation) {
            return violated(NAME, format!("{} is active in an incarnation above its own", row.node.name));
        }
    }
    for former in state.former_leaders.iter() {
        let ended = state.partitions.get(former.partition).is_some_and(|row| row.epoch > former.epoch);
        let dropped = state.condemned.contains(former.node, former.placement);
        if !ended && !dropped {
            return violated(NAME, format!("{former:?} led in the current epoch"));
        }
    }
    Ok(())
}
