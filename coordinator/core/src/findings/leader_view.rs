//! Snapshot of the leading coordinator's volatile memory, for display.

use crate::findings::unavailable_partitions::UnavailablePartitions;
use crate::leases::Churn;
use crate::liveness::Liveness;
use crate::liveness::reachability::DoorView;
use crate::state::ClusterState;
use archon_types::{DoorState, Epoch, Millis, Node, NodeId, NodeStatus, Partition, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// Memory of the leading coordinator, as far as it explains the state of things. Empty: nothing is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaderView {
    /// Nodes that have been failed for so long that their copies are replaced.
    pub(crate) failed: BTreeSet<NodeId>,
    /// Nodes that are being failed or about to exit.
    pub(crate) excluded: BTreeSet<NodeId>,
    /// Leaders that admit no write since they hear too few followers: their epoch, and the number of Live copies they
    /// hear.
    pub(crate) isolated: BTreeMap<PartitionId, (Epoch, u32)>,
    /// Unavailable partitions.
    unserved: UnavailablePartitions,
    /// Partitions that participants gave up recently.
    churn: Option<Churn>,
    /// Doors that are not simply open; `None` without any reports.
    doors: Option<BTreeMap<NodeId, DoorView>>,
    /// Advance of the wall clock over this coordinator's monotonic clock.
    wall_ahead_ms: u64,
    /// Remaining time of the maintenance of each member, in milliseconds.
    maintenance_left: BTreeMap<NodeId, u64>,
}

impl LeaderView {
    /// Takes a snapshot at `now`.
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

    /// Takes only the parts that matter to the placement of copies, for the work of every turn.
    pub(crate) fn of_copies(state: &ClusterState, liveness: &Liveness, now: Millis) -> Self {
        // A node in maintenance is down on purpose.
        let awaited = |node: &NodeId| state.controls.maintenance_of(*node).is_none();
        Self {
            failed: liveness.failed_for(state.settings.replace_after_ms, now).filter(awaited).collect(),
            excluded: liveness.excluded().collect(),
            isolated: liveness.isolated.refused(now).collect(),
            ..Self::default()
        }
    }

    /// Returns the state of a node's door, if there are any reports.
    pub fn door(&self, node: &Node) -> Option<DoorView> {
        let doors = self.doors.as_ref().filter(|_| node.status == NodeStatus::Alive)?;
        let open = || DoorView { state: DoorState::Open, for_ms: None, by: Vec::new() };
        Some(doors.get(&node.id).cloned().unwrap_or_else(open))
    }

    /// Returns the nodes that clients cannot reach, with the states of their doors.
    pub fn unreached(&self) -> impl Iterator<Item = (NodeId, &DoorView)> {
        let doors = self.doors.iter().flatten();
        doors.filter(|(_, view)| view.state == DoorState::Unreached).map(|(node, view)| (*node, view))
    }

    /// Returns the remaining time of the maintenance of this member, in milliseconds; without a leader's memory, the
    /// last recorded one.
    pub fn maintenance_left_ms(&self, state: &ClusterState, member: NodeId) -> Option<u64> {
        let recorded = state.controls.maintenance_of(member)?.left_ms();
        Some(self.maintenance_left.get(&member).copied().unwrap_or(recorded))
    }

    /// Returns the time since this partition is unavailable, on the wall clock.
    pub fn unserved_since(&self, partition: PartitionId) -> Option<Millis> {
        self.unserved.since(partition).map(|since| since.plus(self.wall_ahead_ms))
    }

    /// Returns the partitions that have been unavailable for longer than a failover takes, with the start on the wall
    /// clock.
    pub(crate) fn overdue<'a>(
        &'a self,
        state: &'a ClusterState,
        now: Millis,
    ) -> impl Iterator<Item = (&'a Partition, Millis)> {
        self.unserved.overdue(state, now).map(|(row, since)| (row, since.plus(self.wall_ahead_ms)))
    }

    /// Returns true if the participant gave this partition up recently.
    pub(crate) fn gave_up(&self, participant: NodeId, partition: PartitionId) -> bool {
        self.churn.as_ref().is_some_and(|churn| churn.avoids(participant, partition))
    }
}
