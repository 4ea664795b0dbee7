//! What only the leading coordinator remembers and people should know of, taken out of its memory in one short look.

use crate::doors::DoorView;
use crate::leases::Churn;
use crate::liveness::Liveness;
use crate::state::ClusterState;
use crate::unserved::Unserved;
use archon_types::{DoorState, Epoch, Millis, Node, NodeId, NodeStatus, Partition, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// The memory of the leading coordinator, as far as it explains why things are as they are. Empty: nothing is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// Nodes that have been failed for so long that their copies are replaced.
    pub(crate) failed: BTreeSet<NodeId>,
    /// Nodes that are being failed or about to exit.
    pub(crate) excluded: BTreeSet<NodeId>,
    /// Leaders that admit no write since they hear too few followers: their epoch, and how many Live copies they hear.
    pub(crate) isolated: BTreeMap<PartitionId, (Epoch, u32)>,
    /// The partitions that nobody serves.
    unserved: Unserved,
    /// What participants gave up a moment ago.
    churn: Option<Churn>,
    /// How the doors are that are not just open; `None` if nobody knocks.
    doors: Option<BTreeMap<NodeId, DoorView>>,
    /// How far the wall clock is ahead of this coordinator's own.
    wall_ahead_ms: u64,
    /// Time left of the maintenance of each member, in milliseconds.
    maintenance_left: BTreeMap<NodeId, u64>,
}

impl Remembered {
    /// What is remembered at `now`.
    pub fn new(state: &ClusterState, liveness: &Liveness, now: Millis) -> Self {
        Self {
            unserved: liveness.unserved.clone(),
            churn: Some(liveness.churn.clone()),
            doors: liveness.doors.views(now),
            wall_ahead_ms: liveness.wall(now).since(now),
            maintenance_left: liveness.countdowns.left(now).collect(),
            ..Self::of_copies(state, liveness, now)
        }
    }

    /// Only what matters to where copies are, for what is done in every turn.
    pub(crate) fn of_copies(state: &ClusterState, liveness: &Liveness, now: Millis) -> Self {
        // It is down because somebody works on it.
        let awaited = |node: &NodeId| state.controls.maintenance_of(*node).is_none();
        Self {
            failed: liveness.failed_for(state.settings.replace_after_ms, now).filter(awaited).collect(),
            excluded: liveness.excluded().collect(),
            isolated: liveness.isolated.refused(now).collect(),
            ..Self::default()
        }
    }

    /// How the door of a node is, if anybody knocks there.
    pub fn door(&self, node: &Node) -> Option<DoorView> {
        let doors = self.doors.as_ref().filter(|_| node.status == NodeStatus::Alive)?;
        let open = || DoorView { state: DoorState::Open, for_ms: None, by: Vec::new() };
        Some(doors.get(&node.id).cloned().unwrap_or_else(open))
    }

    /// The nodes that clients do not reach, each with how its door is.
    pub fn unreached(&self) -> impl Iterator<Item = (NodeId, &DoorView)> {
        let doors = self.doors.iter().flatten();
        doors.filter(|(_, view)| view.state == DoorState::Unreached).map(|(node, view)| (*node, view))
    }

    /// Time left of the maintenance of this member, in milliseconds; without a leader's memory, as it was recorded last.
    pub fn maintenance_left_ms(&self, state: &ClusterState, member: NodeId) -> Option<u64> {
        let recorded = state.controls.maintenance_of(member)?.left_ms();
        Some(self.maintenance_left.get(&member).copied().unwrap_or(recorded))
    }

    /// Since when nobody serves this partition, on the wall clock.
    pub fn unserved_since(&self, partition: PartitionId) -> Option<Millis> {
        self.unserved.since(partition).map(|since| since.plus(self.wall_ahead_ms))
    }

    /// The partitions that nobody has served for longer than a failover takes, each since when on the wall clock.
    pub(crate) fn overdue<'a>(
        &'a self,
        state: &'a ClusterState,
        now: Millis,
    ) -> impl Iterator<Item = (&'a Partition, Millis)> {
        self.unserved.overdue(state, now).map(|(row, since)| (row, since.plus(self.wall_ahead_ms)))
    }

    /// Whether the participant gave this partition up a moment ago.
    pub(crate) fn gave_up(&self, participant: NodeId, partition: PartitionId) -> bool {
        self.churn.as_ref().is_some_and(|churn| churn.avoids(participant, partition))
    }
}
