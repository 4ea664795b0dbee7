//! Hand-overs of leases from one owner to the next.

use crate::command::edit::{Edit, LeadershipEnd};
use crate::state::ClusterState;
use archon_types::{Incarnation, NodeId, Partition, PartitionStatus, Placement, PlacementId, ReplicaState};

/// Next owner of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextOwner {
    /// Its placement: one of the row, or a new one.
    pub(crate) placement: Placement,
    /// The incarnation of its member.
    pub(crate) incarnation: Incarnation,
}

/// Returns the placement to which the owner of a lease must hand over, if one was added for that. If operators ordered
/// the end of the leadership, it is the owner's own: the owner must end its work, which it would not do after a
/// withdrawal.
pub(crate) fn hands_over(state: &ClusterState, row: &Partition, owner: &Placement) -> Option<PlacementId> {
    if state.is_offline(row.id) || state.is_bumped(row.id) {
        return Some(owner.id);
    }
    let able = |other: &&Placement| other.id != owner.id && state.is_active(other.node);
    row.live().find(able).map(|other| other.id)
}

/// Returns the edits that make `next` the only owner of a partition.
pub(crate) fn take_over(row: &Partition, next: NextOwner, ending: LeadershipEnd) -> Vec<Edit> {
    let NextOwner { placement, incarnation } = next;
    if row.status == PartitionStatus::Unassigned {
        return vec![Edit::Assign(vec![placement])];
    }
    let mut edits = Vec::new();
    if row.placement(placement.id).is_none() {
        edits.push(Edit::Add(placement));
    }
    edits.push(Edit::Lead { placement: placement.id, incarnation, ending });
    edits.extend(row.placements.iter().filter(|other| other.id != placement.id).map(|other| Edit::Forget(other.id)));
    edits
}

pub(crate) const fn placed(id: PlacementId, node: NodeId) -> Placement {
    Placement { id, node, state: ReplicaState::Live }
}
