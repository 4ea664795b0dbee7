//! A node's row in the table: who it is, what is believed of it, and what is wanted of it.

use crate::ids::{Incarnation, Millis, NodeId, Version};
use crate::node_traits::NodeTraits;
use crate::word::words;
use serde::{Deserialize, Serialize};

words! {
    /// What the coordinator believes of a node.
    #[derive(Serialize, Deserialize)]
    pub enum NodeStatus: "node status" {
        /// It heartbeats.
        Alive = "alive",
        /// It was silent for the failure time-out.
        Failed = "failed",
        /// Its data is gone: another storage id took over its name, or an operator said so.
        Lost = "lost",
    }
}

words! {
    /// What the operator wants of a node.
    #[derive(Serialize, Deserialize)]
    pub enum NodeGoal: "goal of a node" {
        /// Host what it is given.
        Serve = "serve",
        /// Keep what it has, get nothing new.
        Cordon = "cordon",
        /// Be emptied.
        Drain = "drain",
        /// Lead nothing and get nothing new for a while; keep its copies, which are not replaced while it is down.
        Maintain = "maintain",
    }
}

impl NodeGoal {
    /// Whether its leaderships are to go to other members.
    pub const fn gives_up_leaderships(self) -> bool {
        matches!(self, Self::Drain | Self::Maintain)
    }
}

/// A node's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its number, minted per storage id.
    pub id: NodeId,
    /// The operator's name for it, unique among nodes that are not lost.
    pub name: String,
    /// Where it is reached, `host:port`.
    pub address: String,
    /// Log index of its last registration.
    pub incarnation: Incarnation,
    /// What the coordinator believes of it.
    pub status: NodeStatus,
    /// What the operator wants of it.
    pub goal: NodeGoal,
    /// The failure zone it stands in, if the operator said so.
    pub zone: Option<String>,
    /// Its share of partitions relative to other nodes, at least 1; 100 is ordinary.
    pub weight: u32,
    /// Most placements it takes, if limited.
    pub partitions_max: Option<u32>,
    /// Log index of the row's last change.
    pub version: Version,
    /// When it last changed status, on the proposer's wall clock.
    pub since: Millis,
}

impl Node {
    /// A node in its first life: alive, serving, with an ordinary share and no limits.
    pub fn new(id: NodeId, name: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            address: address.into(),
            incarnation: Incarnation::new(1),
            status: NodeStatus::Alive,
            goal: NodeGoal::Serve,
            zone: None,
            weight: 100,
            partitions_max: None,
            version: Version::new(1),
            since: Millis::ZERO,
        }
    }

    /// Its zone, weight and limit.
    pub fn traits(&self) -> NodeTraits {
        NodeTraits { zone: self.zone.clone(), weight: self.weight, partitions_max: self.partitions_max }
    }

    /// Gives it another zone, weight and limit.
    pub fn set_traits(&mut self, traits: NodeTraits) {
        NodeTraits { zone: self.zone, weight: self.weight, partitions_max: self.partitions_max } = traits;
    }
}
