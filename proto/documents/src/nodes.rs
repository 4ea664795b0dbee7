//! Nodes and participants: how they are, and what operators do to them.

use crate::method::{Document, invalid, known, or_none};
use crate::orders::BarSummary;
use archon_types::limits::check_name;
use archon_types::{DoorState, ErrorDetail, LeaseTiming, NodeGoal, NodeStatus, TraitsChange, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeSummary {
    /// The node's number.
    #[serde(rename = "node_id")]
    pub id: u64,
    /// The node's name.
    #[serde(rename = "node")]
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its state, as the coordinators believe.
    pub status: Word<NodeStatus>,
    /// Unix time of the last change of its status.
    pub status_changed_at_ms: u64,
    /// Its goal, set by an operator.
    pub goal: Word<NodeGoal>,
    /// Log index of its last registration.
    pub incarnation: u64,
    /// Copies it holds.
    pub copies_held: u32,
    /// Partitions it leads.
    pub partitions_led: u32,
    /// Its failure zone, if it has one.
    pub zone: Option<String>,
    /// Its share relative to other nodes; 100 is ordinary.
    pub weight: u32,
    /// Most copies it takes, if limited.
    pub partitions_max: Option<u32>,
    /// Bytes it stores, by its last report; null if the leading coordinator has none.
    pub bytes_stored: Option<u64>,
    /// Keys it stores, about; null as `bytes_stored`.
    pub keys_stored: Option<u64>,
    /// Operations it answered in its last second; null as `bytes_stored`.
    pub operations_per_second: Option<u64>,
    /// Time since its last heartbeat, as the leading coordinator saw it; null if that heard none.
    pub silent_for_ms: Option<u64>,
    /// The node that relayed its last heartbeat; null if it came straight.
    pub via: Option<String>,
    /// Reachability for clients; null if no prober tests it.
    pub door: Option<Door>,
    /// It takes no writes, for its disk is full.
    pub disk_full: bool,
    /// It is failed because it reported its own stop.
    pub stopped: bool,
    /// Its heartbeat timing; null if the coordinator did not send it.
    pub timing: Option<MemberTiming>,
    /// Lease tables that it serves, if it is a participant; empty for a node of the key-value store.
    pub serves: Vec<String>,
    /// Unix time at which its maintenance ends by itself, if it is in one.
    pub maintenance_ends_at_ms: Option<u64>,
    /// Its bars.
    pub bars: Vec<BarSummary>,
}

/// Reachability of a node for clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Door {
    /// The state.
    pub state: Word<DoorState>,
    /// For how long, if it is not just open.
    pub state_for_ms: Option<u64>,
    /// The nodes that find it shut.
    pub shut_to: Vec<String>,
}

/// Heartbeat timing of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberTiming {
    /// Time between two heartbeats.
    pub heartbeat_for_ms: u64,
    /// Time for which it may serve after an answered heartbeat.
    pub lease_for_ms: u64,
    /// After so much silence it is failed, and others take over.
    pub failure_timeout_for_ms: u64,
}

impl NodeSummary {
    /// Returns true if it owns leases for another service, and holds no data.
    pub fn is_participant(&self) -> bool {
        !self.serves.is_empty()
    }
}

impl From<LeaseTiming> for MemberTiming {
    fn from(timing: LeaseTiming) -> Self {
        Self {
            heartbeat_for_ms: timing.heartbeat_ms,
            lease_for_ms: timing.lease_ms,
            failure_timeout_for_ms: timing.failure_timeout_ms,
        }
    }
}

/// The effect of draining a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DrainCheck {
    /// Obstacles; empty if it can be done.
    pub obstacles: Vec<String>,
    /// Leaderships that go to other nodes.
    pub leaderships_moved: u32,
    /// Copies that go to other nodes.
    pub copies_moved: u32,
    /// The nodes that get them.
    pub gains: Vec<NodeGain>,
    /// Partitions of which two copies will stand in one zone, and do not now.
    pub zones_doubled: u32,
}

/// Copies that a node would get.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeGain {
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// Number of copies.
    pub copies_gained: u32,
}

/// The effect of removing a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RemoveCheck {
    /// Obstacles; empty if it can be done.
    pub obstacles: Vec<String>,
    /// Copies that would go with it; none of them counts.
    pub copies_removed: u32,
}

/// The effect of declaring a node's data lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LossCheck {
    /// Obstacles; empty if it can be done.
    pub obstacles: Vec<String>,
    /// Copies that would be given up.
    #[serde(flatten)]
    pub loss: NodeLoss,
}

/// Copies lost with a node's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeLoss {
    /// Copies that are given up, those that do not count included.
    pub copies_lost: u32,
    /// In-sync copies among these.
    pub counting_copies_lost: u32,
    /// Partitions that lose their last copy that counts, and acknowledged writes with it.
    pub last_copies_lost: u32,
}

/// The effects of operations on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeCheck {
    /// The node.
    #[serde(flatten)]
    pub node: NodeSummary,
    /// The effect of draining it.
    pub drain: DrainCheck,
    /// The effect of removing it.
    pub remove: RemoveCheck,
    /// The effect of declaring its data lost.
    pub lost: LossCheck,
}

/// Asks for every node; a lost one only as long as no other has taken over its name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListNodes {}

/// Nodes and participants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeList {
    /// The nodes.
    pub nodes: Vec<NodeSummary>,
    /// The version of the newest row.
    pub table_version: u64,
}

/// Sets the goal of a node: to serve, to get nothing new, or to be emptied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetNode {
    /// The node's name.
    pub node: String,
    /// The goal. Maintenance is an order of its own, with an end.
    pub goal: Word<NodeGoal>,
}

/// The goal of a node was set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeSet {
    /// The node's goal now.
    pub goal: Word<NodeGoal>,
}

/// Changes zone, weight or limit of a running node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AlterNode {
    /// The node's name.
    pub node: String,
    /// The change; what is absent stays as it is.
    #[serde(flatten)]
    pub change: TraitsChange,
}

/// A node after a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeAltered {
    /// The node as it is now.
    pub node: NodeSummary,
    /// False: it was so already.
    pub changed: bool,
}

/// Asks for the effect of draining, removing or giving up a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckNode {
    /// The node's name.
    pub node: String,
}

/// Forgets a node that is not alive and holds nothing that counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RemoveNode {
    /// The node's name.
    pub node: String,
}

/// A node was forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeRemoved {
    /// Copies that went with it; none of them counted.
    pub copies_removed: u32,
}

/// Declares that a failed node's data is lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LoseNode {
    /// The node's name.
    pub node: String,
    /// Accepts that partitions lose their last copy that counts.
    #[serde(default)]
    pub accept_data_loss: bool,
}

impl SetNode {
    /// The goal.
    ///
    /// # Errors
    /// `InvalidArgument`, if this version does not know it.
    pub fn goal(&self) -> Result<NodeGoal, ErrorDetail> {
        known(&self.goal, "SetNode.goal")
    }
}

impl Document for ListNodes {}

impl Document for SetNode {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("node", &self.node)?;
        self.goal().map(drop)
    }

    fn subject(&self) -> String {
        subject(&self.node)
    }

    fn wanted(&self) -> Option<String> {
        Some(self.goal.as_str().to_owned())
    }
}

impl Document for AlterNode {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("node", &self.node)?;
        if self.change == TraitsChange::default() {
            return Err(invalid("AlterNode", "give a weight, a limit or a zone"));
        }
        self.change.check()
    }

    fn subject(&self) -> String {
        subject(&self.node)
    }

    fn wanted(&self) -> Option<String> {
        let TraitsChange { zone, weight, partitions_max } = &self.change;
        let weight = weight.map(|weight| format!("weight={weight}"));
        let most = partitions_max.map(|most| format!("partitions_max={}", or_none(most)));
        let zone = zone.as_ref().map(|zone| format!("zone={}", or_none(zone.as_deref())));
        Some([weight, most, zone].into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

impl Document for CheckNode {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("node", &self.node)
    }
}

impl Document for RemoveNode {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("node", &self.node)
    }

    fn subject(&self) -> String {
        subject(&self.node)
    }
}

impl Document for LoseNode {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_name("node", &self.node)
    }

    fn subject(&self) -> String {
        subject(&self.node)
    }

    fn wanted(&self) -> Option<String> {
        Some(accepting(self.accept_data_loss).to_owned())
    }
}

fn subject(node: &str) -> String {
    format!("node {node}")
}

pub(crate) const fn accepting(data_loss: bool) -> &'static str {
    if data_loss { "data loss is accepted" } else { "data loss is not accepted" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn altered_traits_keep_absent_and_null_apart() {
        let read = |text: &str| serde_json::from_str::<AlterNode>(text).unwrap();
        let request = read(r#"{"node": "athens", "weight": 50, "zone": null}"#);
        assert_eq!(request.change, TraitsChange { zone: Some(None), weight: Some(50), partitions_max: None });
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"node":"athens","zone":null,"weight":50}"#);
        assert_eq!(request.wanted().as_deref(), Some("weight=50 zone=none"));
        for wrong in [
            r#"{"node": "athens"}"#,
            r#"{"node": "athens", "weight": 0}"#,
            r#"{"node": "athens", "weight": 10001}"#,
            r#"{"node": "athens", "partitions_max": 0}"#,
            r#"{"node": "athens", "zone": "a b"}"#,
            r#"{"node": "a b", "weight": 5}"#,
        ] {
            assert!(read(wrong).check().is_err(), "{wrong}");
        }
    }
}
