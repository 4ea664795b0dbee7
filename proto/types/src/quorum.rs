//! Changes of the quorum that operators may ask for.

use crate::word::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// What is not known while the coordinators are being recovered.
    #[non_exhaustive]
    pub enum DoubtKind: "doubt" {
        /// A node has not told what it holds.
        Unheard = "unheard",
        /// Nodes were told of changes that are lost.
        Behind = "behind",
        /// A node has lived in another history than the one that this state continues.
        OtherHistory = "other_history",
        /// A node came with an older copy of its data directory.
        Older = "older",
        /// Ranges of keys may have been split or merged by changes that are lost.
        Ranges = "ranges",
        /// Nobody holds a copy of a partition.
        NoCopy = "no_copy",
        /// A node holds copies of partitions that are not known.
        Unknown = "unknown",
        /// The copy with the most entries knows less of leaderships than another one.
        Contested = "contested",
    }
}

/// What an operator wants of the coordinators. A newcomer asks for itself, when it is started with `--join`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum QuorumChange {
    /// A learner becomes a voter.
    Promote {
        /// Its number.
        id: u64,
    },
    /// A voter becomes a learner: it goes on copying the log, and its vote does not count any more.
    Demote {
        /// Its number.
        id: u64,
    },
    /// A coordinator leaves for good: its number is never used again.
    Remove {
        /// Its number.
        id: u64,
    },
    /// A learner takes the place of another coordinator, which leaves for good, in one step.
    Replace {
        /// Who leaves.
        old: u64,
        /// Who comes.
        new: u64,
    },
    /// A coordinator is reached at another address.
    SetAddress {
        /// Its number.
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
            Self::Replace { old, new } => write!(f, "coordinator {new} takes the place of coordinator {old}"),
            Self::SetAddress { id, address } => write!(f, "coordinator {id} is reached at {address}"),
        }
    }
}
