//! Choice of the next leader among the copies of a partition.

use crate::mutant::Mutant;
use crate::placement::score::Need;
use crate::state::ClusterState;
use archon_types::{Incarnation, NodeGoal, NodeId, Partition, Placement, PlacementId, ReplicaState};
use std::collections::BTreeMap;

/// Returns the Live copy that should lead: the target of a migration (or its source, if cancelled), else one on a node
/// that serves as usual (not cordoned, in maintenance or drained) and is not barred from it; of these the one with the
/// fewest leaderships for its weight. `extra` counts leaderships that were named already and are not in the state yet.
/// A copy on a `spared` node is chosen only if there is no other.
pub(crate) fn next_leader(
    state: &ClusterState,
    row: &Partition,
    extra: &mut BTreeMap<NodeId, u32>,
    excluded: impl Fn(NodeId) -> bool,
    spared: impl Fn(NodeId) -> bool,
) -> Option<(PlacementId, Incarnation)> {
    let counts = |copy: &Placement| copy.state == ReplicaState::Live || state.breaks(Mutant::ElectAnyone); // rule 9
    let able = |copy: &&Placement| counts(copy) && state.is_active(copy.node) && !excluded(copy.node);
    let preferred = state
        .migrations
        .running(row.id)
        .and_then(|migration| if migration.cancel { Some(migration.source) } else { migration.stage.target() });
    let chosen = row.placements.iter().filter(able).min_by_key(|live| {
        let leads = state.partitions.leaders_on(live.node) + extra.get(&live.node).copied().unwrap_or(0);
        let node = state.node(live.node).map(|row| &row.node);
        let reserved = node.is_none_or(|node| node.goal != NodeGoal::Serve) || state.bars(row.id, live.node);
        let weight = node.map_or(1, |node| node.weight.max(1));
        (spared(live.node), Some(live.id) != preferred, reserved, Need { count: leads, weight, slot: 0 }, live.id)
    })?;
    *extra.entry(chosen.node).or_default() += 1;
    Some((chosen.id, state.incarnation(chosen.node)?))
}
