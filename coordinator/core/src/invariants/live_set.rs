//! Once assigned, a partition keeps an in-sync copy, unless its data was declared lost: by an event, never silently. An
//! out-of-sync copy becomes Live only by a leader's request, a first assignment, or an operator's acceptance of loss.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use crate::state::events::EventKind;
use archon_types::{Partition, PartitionStatus, ReplicaState};

const NAME: &str = "live_set";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    for row in state.partitions.iter() {
        if row.status == PartitionStatus::Unassigned && row.live().next().is_some() {
            return violated(NAME, format!("{} is Unassigned with a Live copy", row.id));
        }
    }
    Ok(())
}

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    let holds_data = |row: &&Partition| !after.is_lease(row.id.table);
    for row in after.partitions.iter().filter(|row| row.status != PartitionStatus::Unassigned).filter(holds_data) {
        let Some(earlier) = before.partitions.get(row.id) else { continue };
        if row.version == earlier.version {
            continue;
        }
        let news = || after.events.iter().filter(|event| event.index > before.applied).map(|event| &event.what);
        let declared = news().any(|what| match what {
            EventKind::ReplicaLost { partition, .. } | EventKind::CopyDamaged { partition, .. } => *partition == row.id,
            _ => false,
        });
        let settled = news().any(|what| matches!(what, EventKind::RecoverySettled { .. }));
        let accepted =
            news().any(|what| matches!(what, EventKind::DataLossAccepted { partition, .. } if *partition == row.id));
        if earlier.live().next().is_some() && row.live().next().is_none() && !declared && !accepted {
            return violated(NAME, format!("{} lost its last Live copy silently", row.id));
        }
        // Over a single step: a copy that became Live was a loader under a leader, or is new in a first assignment.
        if after.applied == before.applied + 1 && !settled && earlier.status != PartitionStatus::Unassigned && !accepted
        {
            for placement in row.live() {
                match earlier.placement(placement.id).map(|placement| placement.state) {
                    Some(ReplicaState::Live) => {}
                    Some(ReplicaState::Load) if earlier.leader.is_some() => {}
                    other => return violated(NAME, format!("{placement:?} of {} counts, was {other:?}", row.id)),
                }
            }
        }
    }
    Ok(())
}
