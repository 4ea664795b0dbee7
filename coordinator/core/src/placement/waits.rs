//! Blockers of moves, above all the copy limit: the maximum number of copies in progress at each node.

use crate::placement::migrate::{MigrationStep, Phase, next, phase};
use crate::state::ClusterState;
use crate::state::migration::{Migration, MoveKind};
use archon_types::{NodeId, ReplicaState};
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Returns the number of copies in progress to or from each node, migrations and repairs together.
pub(crate) fn copies_by_node(state: &ClusterState) -> BTreeMap<NodeId, u32> {
    let mut copies = BTreeMap::new();
    for row in state.partitions.unsettled() {
        let target = state.migrations.running(row.id).and_then(|migration| migration.stage.target());
        // A copy that was in sync has its data and mostly catches up from the log.
        let loading = row.placements.iter().filter(|placement| {
            placement.state == ReplicaState::Load
                && Some(placement.id) != target
                && !state.departed.contains_key(&placement.id)
        });
        // Without a leader nothing is copied: a partition that lost everything must not use up the limit forever.
        let Some(leader) = row.leader_placement() else { continue };
        for placement in loading {
            *copies.entry(placement.node).or_default() += 1;
            *copies.entry(leader.node).or_default() += 1;
        }
    }
    for migration in state.migrations.all_running().filter(|migration| migration.kind == MoveKind::Copy) {
        if matches!(phase(state, migration), Phase::Copying | Phase::InSync) {
            *copies.entry(migration.from).or_default() += 1;
            *copies.entry(migration.to).or_default() += 1;
        }
    }
    copies
}

/// Blockers of moves, for people. The copies in progress are counted once for all queried moves, and only if one of
/// them may wait for the copy limit.
pub struct Waits<'a> {
    state: &'a ClusterState,
    copies: OnceCell<BTreeMap<NodeId, u32>>,
}

impl<'a> Waits<'a> {
    /// Creates a view of the present state.
    pub const fn new(state: &'a ClusterState) -> Self {
        Self { state, copies: OnceCell::new() }
    }

    /// Returns the blocker of a move; `None` if it is in progress.
    pub fn waiting_for(&self, migration: &Migration) -> Option<String> {
        if migration.stage.is_over() {
            return None;
        }
        match next(self.state, migration) {
            MigrationStep::Wait(why) => Some(why),
            MigrationStep::Step(_) => None,
            MigrationStep::Lead(_) => Some("other leaderships are being moved".into()),
            MigrationStep::Begin => {
                let copies = self.copies.get_or_init(|| copies_by_node(self.state));
                let most = self.state.settings.copies_per_node_max;
                let full = |node: NodeId| copies.get(&node).copied().unwrap_or(0) >= most;
                let node = [migration.from, migration.to].into_iter().find(|node| full(*node))?;
                Some(format!("{} has {most} copies under way, the most allowed", self.state.node_name(node)))
            }
        }
    }
}

/// Returns the blocker of one move, for people; `None` if it is in progress. For several see [`Waits`].
pub fn waiting_for(state: &ClusterState, migration: &Migration) -> Option<String> {
    Waits::new(state).waiting_for(migration)
}
