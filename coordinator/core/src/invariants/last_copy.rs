//! No copy that may hold data gets an order to be deleted while no in-sync copy is on a node that is alive.

use crate::invariants::violation::{Violation, violated};
use crate::placement::out_of_sync::delete_not_issued;
use crate::state::ClusterState;
use archon_types::{Partition, PartitionStatus, Placement, ReplicaState};

const NAME: &str = "last_copy";

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if after.applied != before.applied + 1 {
        return Ok(()); // It is unknown which nodes were alive in between.
    }
    // Only a change of the row issues an order.
    let changed = |row: &&Partition| before.partitions.get(row.id).is_some_and(|known| known.version != row.version);
    for row in after.partitions.iter().filter(changed) {
        let delete_issued = |copy: &Placement| copy.state == ReplicaState::Unload && !delete_not_issued(after, copy);
        let counted = |copy: &&Placement| {
            let known = before.partitions.get(row.id).and_then(|row| row.placement(copy.id));
            known.is_some_and(|known| known.state == ReplicaState::Live) || before.departed.contains_key(&copy.id)
        };
        let Some(gone) = row.placements.iter().filter(|copy| delete_issued(copy)).find(counted) else { continue };
        // The only exception is an operator's order that it begins empty.
        let alive = row.live().any(|live| before.is_alive(live.node) || after.is_alive(live.node));
        if !alive && row.status != PartitionStatus::Unassigned {
            return violated(
                NAME,
                format!("{} of {} is to be deleted, and no in-sync replica is on a live node", gone.id, row.id),
            );
        }
    }
    Ok(())
}
