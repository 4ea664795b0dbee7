//! Row of one node or participant.

use archon_types::limits::{NODE_ASSIGNED_MAX, PARTICIPANT_ASSIGNED_MAX};
use archon_types::{
    BootId, Incarnation, Millis, Node, NodeGoal, NodeStatus, NodeTraits, Participant, ProtocolRange, StorageId,
};
use serde::{Deserialize, Serialize};

/// A node's public row with the coordinators' own fields.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRow {
    /// The public row.
    pub node: Node,
    /// The last incarnation that the node confirmed to have stored durably. A node acts only in an activated
    /// incarnation: until then nothing is pushed to it and it is not elected.
    pub activated: Option<Incarnation>,
    /// Id of its data directory. It is secret: a process that knows it can register under the node's name.
    pub storage: StorageId,
    /// The process that registered last: the same one gets the same answer.
    pub boot: BootId,
    /// Oldest protocol it speaks.
    pub protocol_min: u32,
    /// Newest protocol it speaks.
    pub protocol_max: u32,
    /// It is failed because it announced its stop.
    #[serde(default)]
    pub stopped: bool,
    /// Its zone, weight and limit at its last registration; operators may have changed them since.
    #[serde(default)]
    pub said: NodeTraits,
    /// Time of the last change of its goal, on the proposer's wall clock.
    #[serde(default)]
    pub goal_since: Millis,
    /// Tables that it serves, if it is a participant and no node of the key-value store.
    #[serde(default)]
    pub participant: Option<Participant>,
    /// The participant showed a certificate: it owns only partitions of lease tables that it was granted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub certified: bool,
}

impl NodeRow {
    /// Returns true if it is alive and acts in its present incarnation.
    pub fn is_active(&self) -> bool {
        self.node.status == NodeStatus::Alive && self.activated == Some(self.node.incarnation)
    }

    /// Returns the protocols that its present incarnation speaks.
    pub const fn speaks(&self) -> ProtocolRange {
        ProtocolRange { oldest: self.protocol_min, newest: self.protocol_max }
    }

    /// Returns true if it is active and its operator lets it take new placements.
    pub fn takes_placements(&self) -> bool {
        self.is_active() && self.node.goal == NodeGoal::Serve
    }

    /// Returns true if it takes new placements, or will in a moment: a node that has just registered becomes active
    /// with the answer.
    pub fn will_take_placements(&self) -> bool {
        self.node.status == NodeStatus::Alive && self.node.goal == NodeGoal::Serve
    }

    /// Returns true if its data is lost: it is only remembered, and has no goal.
    pub fn is_lost(&self) -> bool {
        self.node.status == NodeStatus::Lost
    }

    /// Returns true if copies may stay on it.
    pub(crate) fn keeps_placements(&self) -> bool {
        !self.is_lost() && self.node.goal != NodeGoal::Drain
    }

    /// Returns the room for further copies, or leases, beside `has`.
    pub(crate) fn room_beside(&self, has: u32) -> u32 {
        self.assigned_max().saturating_sub(has)
    }

    /// Returns the most copies, or leases, that it is assigned: its own limit, at most as many as its duties in one
    /// message.
    pub(crate) fn assigned_max(&self) -> u32 {
        let most = self.assignable_max();
        self.node.partitions_max.map_or(most, |own| own.min(most))
    }

    /// Returns the most that a member of its kind is assigned, without a limit of its own.
    pub(crate) const fn assignable_max(&self) -> u32 {
        if self.participant.is_some() { PARTICIPANT_ASSIGNED_MAX } else { NODE_ASSIGNED_MAX }
    }
}
