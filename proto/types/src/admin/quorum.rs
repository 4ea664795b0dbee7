//! Changes of the quorum that operators can request.

use crate::admin::open_enum::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// Unknown fact during a recovery of the coordinators.
    #[non_exhaustive]
    pub enum DoubtKind: "doubt" {
        /// A node has not reported its replicas.
        Unheard = "unheard",
        /// Coordinators of an earlier generation may still have a majority.
        FormerQuorum = "former_quorum",
        /// Nodes know of changes that are lost.
        Behind = "behind",
        /// A node belonged to a history that diverged from this state.
        OtherHistory = "other_history",
        /// A node registered with an older copy of its data directory.
        Older = "older",
        /// Lost changes may include splits or merges of key ranges.
        Ranges = "ranges",
        /// No node holds a replica of a partition.
        NoCopy = "no_copy",
        /// A node holds replicas of unknown partitions.
        Unknown = "unknown",
        /// The replica with the most entries knows an older epoch than another one.
        Contested = "contested",
    }
}

/// Requested change of the coordinators. A new coordinator joins by itself, when it is started with `--join`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum QuorumChange {
    /// A learner becomes a voter.
    Promote {
        /// Number of the learner.
        id: u64,
    },
    /// A voter becomes a learner: it still copies the log, but has no vote.
    Demote {
        /// Number of the voter.
        id: u64,
    },
    /// A coordinator leaves permanently: its number is never reused.
    Remove {
        /// Number of the coordinator.
        id: u64,
    },
    /// A learner replaces another coordinator, which leaves permanently, in one step.
    Replace {
        /// Leaving coordinator.
        old: u64,
        /// New voter.
        new: u64,
    },
    /// A coordinator has a new address.
    SetAddress {
        /// Number of the coordinator.
        id: u64,
        /// `host:port`.
        address: String,
    },
}

impl fmt::Display for QuorumChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promote { id } => write!(f, "coordinator {id} becomes a voter"),
            Self::Demote { id } => write!(f, "coordinator {id} becomes a learner"),
            Self::Remove { id } => write!(f, "coordinator {id} is removed"),
            Self::Replace { old, new } => write!(f, "coordinator {new} replaces coordinator {old}"),
            Self::SetAddress { id, address } => write!(f, "coordinator {id} is reached at {address}"),
        }
    }
}
