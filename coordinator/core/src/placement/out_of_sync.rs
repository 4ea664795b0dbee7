//! Out-of-sync copies: the data each may still hold, and when it may be deleted.

use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::{Condition, Partition, PartitionStatus, Placement, PlacementId, ReplicaState, Version};

/// Returns the rank of an out-of-sync copy: the data it may still hold (Gone < Partial < Older < Whole), then the
/// version at which it left sync. The greatest rank is the best.
pub(crate) fn rank(state: &ClusterState, placement: &Placement) -> (Condition, Version) {
    state
        .departed
        .get(&placement.id)
        .map_or((Condition::Partial, Version::ZERO), |departed| (departed.condition, departed.at))
}

/// Returns the data that an out-of-sync copy may still hold.
pub(crate) fn condition(state: &ClusterState, placement: &Placement) -> Condition {
    rank(state, placement).0
}

/// Returns true if the copy was in sync, and was lost or damaged since.
pub(crate) fn is_lost(state: &ClusterState, id: PlacementId) -> bool {
    state.departed.get(&id).is_some_and(|departed| departed.lost)
}

/// Returns true if the copy is to be deleted and its node has no order to do so: the node was not alive at the
/// decision, and by its return the other copies may be gone.
pub(crate) fn delete_not_issued(state: &ClusterState, placement: &Placement) -> bool {
    placement.state == ReplicaState::Unload && state.departed.contains_key(&placement.id)
}

/// Checks that this copy may be deleted now (PROTOCOL rule 7). A copy that may hold data can be deleted only if at
/// least `max(1, min_in_sync)` other Live copies are on nodes that are alive. Exception, if fewer Live copies exist at
/// all: every remaining Live copy must be on such a node, the partition must have a leader and its full number of
/// placements, and no other copy may be on its way. Thus lost copies are replaced one at a time.
///
/// # Errors
/// The number of other Live copies on nodes that are alive, and the required number.
pub(crate) fn may_go(state: &ClusterState, row: &Partition, id: PlacementId) -> Result<(), (usize, usize)> {
    let others = || row.live().filter(|live| live.id != id);
    let alive = others().filter(|live| state.is_alive(live.node)).count();
    let wanted = usize::from(row.min_in_sync).max(1);
    // The copy is being deleted or made.
    let on_its_way = |other: &Placement| match other.state {
        ReplicaState::Unload => state.is_alive(other.node) && !delete_not_issued(state, other),
        ReplicaState::Load => !state.departed.contains_key(&other.id),
        ReplicaState::Live => false,
    };
    let no_other_change = || row.placements.iter().filter(|other| other.id != id).all(|other| !on_its_way(other));
    let copies = state.tables.get(&row.id.table).map_or(1, |table| usize::from(table.replication));
    let has_leader_and_all_copies = row.leader.is_some() && row.placements.len() >= copies;
    let every_live_is_alive = alive > 0 && alive == others().count();
    let exception = every_live_is_alive && has_leader_and_all_copies && no_other_change();
    match alive >= wanted || exception || state.breaks(Mutant::LastCopyGoes) {
        true => Ok(()),
        false => Err((alive, wanted)),
    }
}

/// Returns true if the order to delete may be issued now: at least one Live copy must be on a node that is alive, since
/// the decision may be outdated. An Unassigned partition has no data, so all its copies may go.
pub(crate) fn may_issue_delete(state: &ClusterState, row: &Partition) -> bool {
    row.status == PartitionStatus::Unassigned
        || row.live().any(|live| state.is_alive(live.node))
        || state.breaks(Mutant::LastCopyGoes)
}
