//! Participants hold only leases, nodes hold no leases; a lease has no data that could be out of sync.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use archon_types::ReplicaState;

const NAME: &str = "leases";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    for row in state.partitions.iter() {
        let is_lease = state.is_lease(row.id.table);
        for copy in &row.placements {
            if state.participants.get(&copy.node).is_some() != is_lease && state.node(copy.node).is_some() {
                return violated(NAME, format!("{copy:?} of {} stands on the wrong kind of member", row.id));
            }
            if is_lease && copy.state != ReplicaState::Live {
                return violated(NAME, format!("{copy:?} of the lease {} is not Live", row.id));
            }
        }
    }
    if state.untouched.iter().any(|partition| state.is_lease(partition.table)) {
        return violated(NAME, "something is known of the data of a lease");
    }
    if let Some(row) = state.members().find(|row| row.participant.is_some() != state.nodes.get(&row.node.id).is_none())
    {
        return violated(NAME, format!("{} stands in the wrong list", row.node.name));
    }
    Ok(())
}
