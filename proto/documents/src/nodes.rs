//! Nodes and participants: how they are, and what operators do to them.

use crate::method::{Document, invalid, known, or_none};
use crate::orders::BarSummary;
use archon_types::limits::check_name;
use archon_types::{DoorState, ErrorDetail, LeaseTiming, NodeGoal, NodeStatus, OpenEnum, TraitsChange};
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
    /// Address as HOST:PORT.
    pub address: String,
    /// State, as seen by the coordinators.
    pub status: OpenEnum<NodeStatus>,
    /// Unix time in milliseconds of the last change of its status.
    pub status_changed_at_ms: u64,
    /// Goal set by an operator.
    pub goal: OpenEnum<NodeGoal>,
    /// Log index of its last registration.
    pub incarnation: u64,
    /// Number of replicas it holds.
    pub copies_held: u32,
    /// Number of partitions it leads.
    pub partitions_led: u32,
    /// Failure zone, if it has one.
    pub zone: Option<String>,
    /// Share relative to other nodes; the default is 100.
    pub weight: u32,
    /// Maximum number of replicas; null for no limit.
    pub partitions_max: Option<u32>,
    /// Bytes stored, by its last report; null if the leading coordinator has no report.
    pub bytes_stored: Option<u64>,
    /// Approximate number of keys stored; null like `bytes_stored`.
    pub keys_stored: Option<u64>,
    /// Operations answered in the last second; null like `bytes_stored`.
    pub operations_per_second: Option<u64>,
    /// Milliseconds since its last heartbeat reached the leading coordinator; null if none did.
    pub silent_for_ms: Option<u64>,
    /// Node that relayed its last heartbeat; null if the heartbeat arrived directly.
    pub via: Option<String>,
    /// Reachability for clients; null if no prober tests it.
    pub door: Option<Door>,
    /// True if it refuses writes because its disk is full.
    pub disk_full: bool,
    /// True if it is failed because it reported its stop.
    pub stopped: bool,
    /// Heartbeat timing; null if the coordinator did not send it.
    pub timing: Option<MemberTiming>,
    /// Lease tables served by a participant; empty for a node of the key-value store.
    pub serves: Vec<String>,
    /// Unix time in milliseconds at which its maintenance ends; null if it is not in maintenance.
    pub maintenance_ends_at_ms: Option<u64>,
    /// Exclusions of the node.
    pub bars: Vec<BarSummary>,
}

/// Reachability of a node for clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Door {
    /// The state.
    pub state: OpenEnum<DoorState>,
    /// Milliseconds since it entered this state; null while it is open.
    pub state_for_ms: Option<u64>,
    /// Nodes that cannot reach it.
    pub shut_to: Vec<String>,
}

/// Heartbeat timing of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberTiming {
    /// Interval of heartbeats in milliseconds.
    pub heartbeat_for_ms: u64,
    /// Lease in milliseconds granted by an answered heartbeat.
    pub lease_for_ms: u64,
    /// Silence in milliseconds after which it is failed and others take over.
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

/// Effect of draining a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct DrainCheck {
    /// Obstacles; empty if the operation is possible.
    pub obstacles: Vec<String>,
    /// Number of leaderships that move to other nodes.
    pub leaderships_moved: u32,
    /// Number of replicas that move to other nodes.
    pub copies_moved: u32,
    /// Nodes that receive them.
    pub gains: Vec<NodeGain>,
    /// Number of partitions that will have two replicas in one zone, and have not now.
    pub zones_doubled: u32,
}

/// Replicas that a node would receive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeGain {
    /// The node's number.
    pub node_id: u64,
    /// The node's name.
    pub node: String,
    /// Number of replicas.
    pub copies_gained: u32,
}

/// Effect of removing a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RemoveCheck {
    /// Obstacles; empty if the operation is possible.
    pub obstacles: Vec<String>,
    /// Number of replicas that would be discarded; none of them is in sync.
    pub copies_removed: u32,
}

/// Effect of declaring the data of a node lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LossCheck {
    /// Obstacles; empty if the operation is possible.
    pub obstacles: Vec<String>,
    /// Copies that would be given up.
    #[serde(flatten)]
    pub loss: NodeLoss,
}

/// Replicas lost with the data of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeLoss {
    /// Number of discarded replicas, in sync or not.
    pub copies_lost: u32,
    /// Number of in-sync replicas among these.
    pub counting_copies_lost: u32,
    /// Number of partitions that lose their last in-sync replica, and acknowledged writes with it.
    pub last_copies_lost: u32,
}

/// The effects of operations on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeCheck {
    /// The node.
    #[serde(flatten)]
    pub node: NodeSummary,
    /// Effect of draining it.
    pub drain: DrainCheck,
    /// Effect of removing it.
    pub remove: RemoveCheck,
    /// Effect of declaring its data lost.
    pub lost: LossCheck,
}

/// Lists the nodes; a lost node only until another one takes over its name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListNodes {}

/// Nodes and participants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeList {
    /// The nodes.
    pub nodes: Vec<NodeSummary>,
    /// Version of the newest row of the tables.
    pub table_version: u64,
}

/// Sets the goal of a node: serve, cordon or drain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetNode {
    /// The node's name.
    pub node: String,
    /// The goal. Maintenance is an order of its own, with an end.
    pub goal: OpenEnum<NodeGoal>,
}

/// The goal of a node was set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeSet {
    /// The node's goal now.
    pub goal: OpenEnum<NodeGoal>,
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
    /// False if the requested state was already in force.
    pub changed: bool,
}

/// Computes the effect of draining or removing a node, or of declaring it lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CheckNode {
    /// The node's name.
    pub node: String,
}

/// Removes a node that is not alive and holds no in-sync replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RemoveNode {
    /// The node's name.
    pub node: String,
}

/// A node was removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeRemoved {
    /// Number of discarded replicas; none of them was in sync.
    pub copies_removed: u32,
}

/// Declares the data of a failed node lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LoseNode {
    /// The node's name.
    pub node: String,
    /// Accepts that partitions lose their last in-sync replica.
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
