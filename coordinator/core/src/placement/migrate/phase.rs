//! Phase of a migration, for people.

use crate::state::ClusterState;
use crate::state::migration::{Migration, MoveKind, Stage};
use archon_types::{MovePhase, ReplicaState};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Phase of a migration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Waits until both nodes are below the copy limit.
    Queued,
    /// The target is being loaded.
    Copying,
    /// The target is Live; the source still leads.
    InSync,
    /// Leadership moved to the target, which does not yet serve; or the source never led.
    HandOver,
    /// The source's copy is being deleted.
    Cleanup,
    /// Done: the target has replaced the source.
    Done,
    /// Cancelled by the operator.
    Cancelled,
    /// Ended because other changes of the cluster made it pointless.
    Superseded {
        /// The change, for people.
        why: String,
    },
    /// Undone.
    Failed {
        /// Reason, for people.
        why: String,
    },
}

impl Phase {
    /// Returns the phase without its reasons.
    pub const fn word(&self) -> MovePhase {
        match self {
            Self::Queued => MovePhase::Queued,
            Self::Copying => MovePhase::Copying,
            Self::InSync => MovePhase::InSync,
            Self::HandOver => MovePhase::HandOver,
            Self::Cleanup => MovePhase::Cleanup,
            Self::Done => MovePhase::Done,
            Self::Cancelled => MovePhase::Cancelled,
            Self::Superseded { .. } => MovePhase::Superseded,
            Self::Failed { .. } => MovePhase::Failed,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.word().fmt(f)
    }
}

/// Computes the phase of a migration from its record and its partition's row.
pub fn phase(state: &ClusterState, migration: &Migration) -> Phase {
    let target = match &migration.stage {
        Stage::Queued => return Phase::Queued,
        Stage::Done { .. } => return Phase::Done,
        Stage::Cancelled => return Phase::Cancelled,
        Stage::Superseded { why } => return Phase::Superseded { why: why.clone() },
        Stage::Failed { why } => return Phase::Failed { why: why.clone() },
        Stage::Running { target } => *target,
    };
    let Some(row) = state.partitions.get(migration.partition) else {
        return Phase::Failed { why: "the partition is gone".into() };
    };
    if migration.kind == MoveKind::Leadership {
        return if row.leader == Some(target) { Phase::HandOver } else { Phase::InSync };
    }
    match (row.placement(target).map(|placement| placement.state), row.placement(migration.source)) {
        (Some(ReplicaState::Live), Some(source)) => match source.state {
            ReplicaState::Live if row.leader == Some(source.id) || row.leader.is_none() => Phase::InSync,
            ReplicaState::Live | ReplicaState::Load => Phase::HandOver,
            ReplicaState::Unload => Phase::Cleanup,
        },
        (Some(ReplicaState::Live), None) => Phase::Cleanup,
        (Some(ReplicaState::Load | ReplicaState::Unload) | None, _) => Phase::Copying,
    }
}
