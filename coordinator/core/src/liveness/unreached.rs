//! Leaderships of nodes that clients cannot reach: they go to other copies (PROTOCOL rule 76).

use crate::liveness::Liveness;
use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::events::DoorNews;
use archon_types::{DoorReport, Incarnation, Millis, NodeId, Partition};
use std::collections::BTreeSet;

impl Liveness {
    /// Records a live keeper's report about the doors at which it knocks.
    pub fn note_doors(&mut self, keeper: NodeId, incarnation: Incarnation, report: DoorReport, now: Millis) {
        self.doors.note(keeper, incarnation, report, now);
    }

    /// Returns the number of nodes that clients cannot reach.
    pub fn unreached(&self) -> usize {
        self.unreached_nodes().count()
    }

    /// Returns the nodes that clients cannot reach.
    pub fn unreached_nodes(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.doors.unreached()
    }

    /// Returns the nodes that get only leaderships without another candidate: they are unreached, or were until
    /// recently.
    pub fn spared(&self) -> BTreeSet<NodeId> {
        self.doors.spared().collect()
    }

    /// Takes the verdicts that began or ended since the last call.
    pub fn door_news(&mut self) -> Vec<DoorNews> {
        self.doors.take_news()
    }

    /// Updates the verdicts at `now`. The next pass acts on them.
    pub(crate) fn judge_doors(&mut self, state: &ClusterState, now: Millis) {
        let mut doors = std::mem::take(&mut self.doors);
        if doors.judge(state, self.became_leader_at(), |node| !self.may_lead(node), now) {
            self.passed = None;
        }
        self.doors = doors;
    }

    /// Withdraws leaderships of unreached nodes where another copy can lead, so that they release them.
    pub(crate) fn withdraw_unreached(&mut self, state: &ClusterState) {
        let leading = |node: &NodeId| state.partitions.leaders_on(*node) > 0;
        for node in self.doors.unreached().filter(leading).collect::<Vec<_>>() {
            let led = |row: &&Partition| row.leader_placement().is_some_and(|leader| leader.node == node);
            let rows = state.partitions.on_node(node).filter(led).filter(|row| self.goes_elsewhere(state, row));
            for partition in rows.map(|row| row.id).collect::<Vec<_>>() {
                self.withdraw(state, partition);
            }
        }
    }

    /// Returns true if a leadership of an unreached node ends: enough other copies exist to serve without it, and one
    /// of them can lead (rule 76).
    fn goes_elsewhere(&self, state: &ClusterState, row: &Partition) -> bool {
        if state.breaks(Mutant::UnreachedLosesTheLast) {
            return true;
        }
        let own = row.leader_placement().map(|leader| leader.node);
        let serves = |node: NodeId| {
            Some(node) != own && state.is_active(node) && self.may_lead(node) && !self.doors.is_unreached(node)
        };
        let others = || row.live().filter(|live| serves(live.node));
        others().count() >= usize::from(row.min_in_sync.max(1)) && others().any(|live| !self.doors.spares(live.node))
    }
}
