//! Persisted record of one placement's move. Its phase is derived from the partition's row by
//! `placement::migrate::phase`, so record and row cannot disagree.

pub use archon_types::MoveKind;
use archon_types::{Millis, NodeId, PartitionId, PlacementId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A migration's number, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MigrationId(u64);

impl MigrationId {
    /// Wraps a raw number from the wire or the disk.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Returns the raw number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MigrationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Recorded stage of a migration; the finer phase is derived.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// Nothing done yet.
    Queued,
    /// The target's placement was added to the row.
    Running {
        /// The copy being made.
        target: PlacementId,
    },
    /// The source's copy is gone, or will be when its failed node returns.
    Done {
        /// The copy that was made.
        target: PlacementId,
    },
    /// Cancelled by the operator; the source serves as before.
    Cancelled,
    /// Ended because other changes of the cluster made it pointless, without a failure.
    Superseded {
        /// The change, for people.
        why: String,
    },
    /// Undone because it could not continue.
    Failed {
        /// Reason, for people.
        why: String,
    },
}

impl Stage {
    /// Returns true if this stage is final.
    pub const fn is_over(&self) -> bool {
        match self {
            Self::Queued | Self::Running { .. } => false,
            Self::Done { .. } | Self::Cancelled | Self::Superseded { .. } | Self::Failed { .. } => true,
        }
    }

    /// Returns the copy that is being made or was made, if there is one.
    pub const fn target(&self) -> Option<PlacementId> {
        match self {
            Self::Running { target } | Self::Done { target } => Some(*target),
            Self::Queued | Self::Cancelled | Self::Superseded { .. } | Self::Failed { .. } => None,
        }
    }
}

/// One placement's move from a node to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Migration {
    /// Its number.
    pub id: MigrationId,
    /// The log index of the plan it belongs to.
    pub plan: u64,
    /// Kind of move.
    pub kind: MoveKind,
    /// The partition.
    pub partition: PartitionId,
    /// The copy to remove, or the leading copy.
    pub source: PlacementId,
    /// Its node.
    pub from: NodeId,
    /// The node that gets the copy or the leadership.
    pub to: NodeId,
    /// Reason of the plan, for people.
    pub reason: String,
    /// Estimate of the bytes to copy, made with the plan.
    pub bytes: u64,
    /// Its stage.
    pub stage: Stage,
    /// True if the operator cancelled it; obeyed until leadership has moved.
    pub cancel: bool,
    /// Time of the request, on the proposer's wall clock.
    pub asked_at: Millis,
    /// Time of the last change of the record, on the proposer's wall clock.
    pub changed_at: Millis,
}
