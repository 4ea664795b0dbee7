//! Moves of a plan, and the goals it cannot reach, each with the reason.

use crate::state::migration::MoveKind;
use archon_types::{NodeId, PartitionId, PlacementId, TableId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One placement's move as decided, with the numbers behind it. Its displayed form is an [`archon_types::plan::Move`],
/// its form in the log a [`PlannedMove`](crate::PlannedMove).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Kind of move.
    pub kind: MoveKind,
    /// The partition.
    pub partition: PartitionId,
    /// The copy to remove, or the present leader.
    pub placement: PlacementId,
    /// Its node; for a leadership, its node after the plan's moves of copies.
    pub from: NodeId,
    /// The node that gets the copy or the leadership.
    pub to: NodeId,
    /// Reason.
    pub reason: MoveReason,
    /// Bytes to copy. Unknown to the plan; the caller, which knows the nodes' loads, fills it in.
    pub bytes: u64,
}

/// Reason of a move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum MoveReason {
    /// Its node has more than its share.
    Balance {
        /// Placements on the node now.
        has: u32,
        /// Its share.
        share: u32,
    },
    /// Its node leads more for its weight than the new leader's.
    Lead {
        /// Partitions that the node leads.
        leads: u32,
        /// Partitions that the other one leads.
        other: u32,
    },
    /// Only nodes without room may take a missing copy: this move makes room on one of them.
    MakeRoom,
    /// The other node leads as many and passes one on, up to a node that leads fewer for its weight.
    PassOn {
        /// Partitions that the node leads.
        leads: u32,
        /// Partitions that the other one leads.
        other: u32,
    },
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balance { has, share } => write!(f, "the node has {has}, its share is {share}"),
            Self::Lead { leads, other } => {
                write!(f, "the node leads {leads}, the target {other}; no data is copied")
            }
            Self::MakeRoom => write!(f, "makes room for a missing replica that only full nodes could take"),
            Self::PassOn { leads, other } => write!(
                f,
                "the node leads {leads}; the target leads {other} and passes one on to a node that leads fewer; no \
                 data is copied"
            ),
        }
    }
}

/// Subject of an unmet goal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Subject {
    /// A node.
    Node(NodeId),
    /// A table.
    Table(TableId),
}

/// A goal that the plan cannot reach.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnmetGoal {
    /// Subject.
    pub subject: Subject,
    /// Reason.
    pub reason: UnmetReason,
}

/// Reason why a plan cannot reach a goal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum UnmetReason {
    /// The node is draining, and no node can take these placements.
    NotEmptied {
        /// Number of placements.
        placements: u32,
    },
    /// The node keeps more than its share, since no other node may take these.
    AboveShare {
        /// Placements on the node.
        has: u32,
        /// Its share.
        share: u32,
    },
    /// The table's partitions have no copies yet.
    NotAssigned {
        /// Nodes that take copies.
        have: u64,
        /// Nodes it waits for.
        need: u64,
    },
    /// Partitions of the table keep two copies in one zone.
    ZonesDoubled {
        /// Number of partitions.
        partitions: u32,
    },
    /// The node is not alive, so its placements are not moved.
    NotAlive {
        /// Number of its placements.
        placements: u32,
    },
}

impl fmt::Display for UnmetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotEmptied { placements } => {
                write!(
                    f,
                    "no other node can take {placements} placements of the drained node; add nodes or raise \
                           limits"
                )
            }
            Self::AboveShare { has, share } => {
                write!(f, "the node keeps {has} of a share of {share}: no other node may take more")
            }
            Self::NotAssigned { have, need } => {
                write!(f, "the table is not assigned yet: {have} of {need} nodes take replicas")
            }
            Self::ZonesDoubled { partitions } => {
                write!(
                    f,
                    "{partitions} partitions keep two replicas in one zone: nodes of other zones have no capacity, or \
                     there are \
                     fewer zones than replicas"
                )
            }
            Self::NotAlive { placements } => {
                write!(
                    f,
                    "the node is not alive: a rebalance moves none of its {placements} placements; it returns with \
                     them, or they are rebuilt on other nodes after replace_after_ms"
                )
            }
        }
    }
}
