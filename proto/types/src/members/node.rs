//! Row of a node: identity, observed status and desired state.

use crate::admin::open_enum::words;
use crate::common::limits::WEIGHT_ORDINARY;
use crate::ids::{Incarnation, Millis, NodeId, Version};
use crate::members::node_traits::NodeTraits;
use serde::{Deserialize, Serialize};

/// Protocol that introduced the addresses of Redis listeners.
pub const REDIS_SINCE: u32 = 2;

words! {
    /// Status of a node, as the coordinator believes.
    #[derive(Serialize, Deserialize)]
    pub enum NodeStatus: "node status" {
        /// Sends heartbeats.
        Alive = "alive",
        /// Was silent for the failure time-out.
        Failed = "failed",
        /// Its data is lost: another storage id took over its name, or an operator declared it lost.
        Lost = "lost",
    }
}

words! {
    /// Desired state of a node, set by the operator.
    #[derive(Serialize, Deserialize)]
    pub enum NodeGoal: "goal of a node" {
        /// Host replicas and lead partitions.
        Serve = "serve",
        /// Keep existing replicas, receive no new ones.
        Cordon = "cordon",
        /// Hand over all replicas.
        Drain = "drain",
        /// Lead nothing and receive nothing new for a while; keep the replicas, which are not replaced while the node
        /// is down.
        Maintain = "maintain",
    }
}

impl NodeGoal {
    /// Returns true if its leaderships must move to other members.
    pub const fn gives_up_leaderships(self) -> bool {
        matches!(self, Self::Drain | Self::Maintain)
    }
}

/// A node's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Number, generated per storage id.
    pub id: NodeId,
    /// Name given by the operator, unique among nodes that are not lost.
    pub name: String,
    /// Address, `host:port`.
    pub address: String,
    /// Log index of its last registration.
    pub incarnation: Incarnation,
    /// Observed status.
    pub status: NodeStatus,
    /// Desired state.
    pub goal: NodeGoal,
    /// Failure zone, if the operator set one.
    pub zone: Option<String>,
    /// Share of partitions relative to other nodes, at least 1; 100 is the default.
    pub weight: u32,
    /// Maximum number of placements, if limited.
    pub partitions_max: Option<u32>,
    /// Log index of the row's last change.
    pub version: Version,
    /// Time of its last status change, on the proposer's wall clock.
    pub since: Millis,
    /// Address of its Redis listener, `host:port`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<String>,
}

impl Node {
    /// Creates a node in its first incarnation: alive, serving, with an ordinary share and no limits.
    pub fn new(id: NodeId, name: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            address: address.into(),
            incarnation: Incarnation::new(1),
            status: NodeStatus::Alive,
            goal: NodeGoal::Serve,
            zone: None,
            weight: WEIGHT_ORDINARY,
            partitions_max: None,
            version: Version::new(1),
            since: Millis::ZERO,
            redis: None,
        }
    }

    /// Returns its zone, weight and limit.
    pub fn traits(&self) -> NodeTraits {
        NodeTraits { zone: self.zone.clone(), weight: self.weight, partitions_max: self.partitions_max }
    }

    /// Sets its zone, weight and limit.
    pub fn set_traits(&mut self, traits: NodeTraits) {
        NodeTraits { zone: self.zone, weight: self.weight, partitions_max: self.partitions_max } = traits;
    }
}
