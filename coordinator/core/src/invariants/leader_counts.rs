//! Only a Live replica on a node that is alive leads, and the status of a row agrees with its leader.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use archon_types::{PartitionStatus, ReplicaState};

const NAME: &str = "leader_counts";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    for row in state.partitions.iter() {
        match (row.leader, row.leader_placement()) {
            (Some(leader), None) => return violated(NAME, format!("{leader} leads {} without being there", row.id)),
            (Some(_), Some(leader)) if leader.state != ReplicaState::Live => {
                return violated(NAME, format!("{leader:?} leads {}", row.id));
            }
            (Some(_), Some(leader)) if !state.is_alive(leader.node) => {
                return violated(NAME, format!("{leader:?} on a node that is not alive leads {}", row.id));
            }
            _ => {}
        }
        let served = matches!(row.status, PartitionStatus::Assigned | PartitionStatus::Online);
        if served != row.leader.is_some() {
            return violated(NAME, format!("{} is {} with leader {:?}", row.id, row.status, row.leader));
        }
    }
    Ok(())
}
