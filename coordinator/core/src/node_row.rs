//! What the coordinators hold of one node or participant.

use crate::state::ClusterState;
use archon_types::{
    BootId, Incarnation, Millis, Node, NodeGoal, NodeStatus, NodeTraits, Participant, ProtocolRange, StorageId,
};
use serde::{Deserialize, Serialize};

/// A node's row with what only the coordinator needs of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRow {
    /// What everybody may see.
    pub node: Node,
    /// The last incarnation of which the node said that it stored it durably. A node acts only in an activated life: until
    /// then nothing is pushed to it and it is not elected.
    pub activated: Option<Incarnation>,
    /// Its data directory's id. Nobody but the node itself is told: who knows it can register in the node's name.
    pub storage: StorageId,
    /// The process that registered last: the same one gets the same answer.
    pub boot: BootId,
    /// Oldest protocol it speaks.
    pub protocol_min: u32,
    /// Newest protocol it speaks.
    pub protocol_max: u32,
    /// It is failed since it said itself that it has stopped.
    #[serde(default)]
    pub stopped: bool,
    /// What it said of its zone, weight and limit when it registered last; what it has may be another thing by now.
    #[serde(default)]
    pub said: NodeTraits,
    /// Since when what is wanted of it is, on the proposer's wall clock.
    #[serde(default)]
    pub goal_since: Millis,
    /// What it serves, if it is a participant and no node of the key-value store.
    #[serde(default)]
    pub participant: Option<Participant>,
    /// The participant showed a certificate: it owns partitions of lease tables that it was granted only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub certified: bool,
}

impl NodeRow {
    /// Live, and acting in its present life.
    pub fn is_active(&self) -> bool {
        self.node.status == NodeStatus::Alive && self.activated == Some(self.node.incarnation)
    }

    /// The protocols that it speaks in its present life.
    pub const fn speaks(&self) -> ProtocolRange {
        ProtocolRange { oldest: self.protocol_min, newest: self.protocol_max }
    }

    /// Active, and the operator lets it take new placements.
    pub fn takes_placements(&self) -> bool {
        self.is_active() && self.node.goal == NodeGoal::Serve
    }

    /// Takes new placements, or will in a moment: a node that has just registered is active once it has heard so.
    pub fn will_take_placements(&self) -> bool {
        self.node.status == NodeStatus::Alive && self.node.goal == NodeGoal::Serve
    }

    /// Its data is lost: it is only remembered, and nothing can be wanted of it.
    pub fn is_lost(&self) -> bool {
        self.node.status == NodeStatus::Lost
    }

    /// Whether copies on it may stay there.
    pub(crate) fn keeps_placements(&self) -> bool {
        !self.is_lost() && self.node.goal != NodeGoal::Drain
    }

    /// How many more copies, or leases, it has room for beside `has`.
    pub(crate) fn room_beside(&self, has: u32) -> u32 {
        self.node.partitions_max.map_or(u32::MAX, |most| most.saturating_sub(has))
    }

    /// How many more it has room for beside all that stand on it.
    pub(crate) fn room(&self, state: &ClusterState) -> u32 {
        self.room_beside(state.partitions.count_on(self.node.id))
    }
}
