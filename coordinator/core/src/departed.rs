//! What is known of copies that do not count any more: how much of the data each can still hold.

use crate::mutant::Mutant;
use crate::state::ClusterState;
pub use archon_types::Condition;
use archon_types::{Partition, PartitionStatus, Placement, PlacementId, ReplicaState, Version};
use serde::{Deserialize, Serialize};

/// A copy that counted once and does not now. Also kept of one that is to be deleted, as long as its node has not been
/// told so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Departed {
    /// The row's version at which it ceased to count.
    pub at: Version,
    /// What it holds, never [`Condition::Partial`].
    pub condition: Condition,
    /// It was lost or damaged, not merely dropped: nobody brings it up to date. It stays as it is until another one may
    /// take its place, or an operator names it.
    pub lost: bool,
}

/// How good a copy that does not count is beside others: by what it can hold, then by when it ceased to count. The
/// greatest is the best.
pub(crate) fn rank(state: &ClusterState, placement: &Placement) -> (Condition, Version) {
    state
        .departed
        .get(&placement.id)
        .map_or((Condition::Partial, Version::ZERO), |departed| (departed.condition, departed.at))
}

/// What a copy that does not count can hold.
pub(crate) fn condition(state: &ClusterState, placement: &Placement) -> Condition {
    rank(state, placement).0
}

/// Whether the copy counted once, and was lost or damaged since.
pub(crate) fn is_lost(state: &ClusterState, id: PlacementId) -> bool {
    state.departed.get(&id).is_some_and(|departed| departed.lost)
}

/// Whether the copy is to be deleted and its node has not been told so: it was not alive when that was decided, and by the
/// time it returns the others may be gone.
pub(crate) fn is_unordered(state: &ClusterState, placement: &Placement) -> bool {
    placement.state == ReplicaState::Unload && state.departed.contains_key(&placement.id)
}

/// Whether this copy, which may hold data, may be deleted now (PROTOCOL rule 7): only while as many others count on nodes
/// that are alive as acknowledge a write. Where fewer count at all, since others were lost, those that do suffice if all
/// of them are on such nodes and one leads, for one copy at a time: the next goes when something counts in the place of the
/// one before. Otherwise nothing could ever take the place of the lost ones.
///
/// # Errors
/// How many there are, and how many there must be.
pub(crate) fn may_go(state: &ClusterState, row: &Partition, id: PlacementId) -> Result<(), (usize, usize)> {
    let others = || row.live().filter(|live| live.id != id);
    let alive = others().filter(|live| state.is_alive(live.node)).count();
    let wanted = usize::from(row.min_in_sync).max(1);
    // Another one goes, or another one comes.
    let under_way = |other: &Placement| match other.state {
        ReplicaState::Unload => state.is_alive(other.node) && !is_unordered(state, other),
        ReplicaState::Load => !state.departed.contains_key(&other.id),
        ReplicaState::Live => false,
    };
    let alone = || row.placements.iter().filter(|other| other.id != id).all(|other| !under_way(other));
    let copies = state.tables.get(&row.id.table).map_or(1, |table| usize::from(table.replication));
    let led = row.leader.is_some() && row.placements.len() >= copies;
    let all = alive > 0 && alive == others().count() && led && alone();
    match alive >= wanted || all || state.breaks(Mutant::LastCopyGoes) {
        true => Ok(()),
        false => Err((alive, wanted)),
    }
}

/// Whether a copy that is to be deleted may be deleted at this moment: not while nobody who counts is alive, whatever was
/// the case when it was decided. Of a partition that begins empty everything may go.
pub(crate) fn may_be_ordered(state: &ClusterState, row: &Partition) -> bool {
    row.status == PartitionStatus::Unassigned
        || row.live().any(|live| state.is_alive(live.node))
        || state.breaks(Mutant::LastCopyGoes)
}
