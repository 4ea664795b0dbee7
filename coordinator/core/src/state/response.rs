//! Outcome of committed commands.

use crate::state::migration::MigrationId;
use archon_types::{ErrorDetail, Incarnation, NodeId, SettingStep, TableId, Version};
use serde::{Deserialize, Serialize};

/// Outcome of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Response {
    /// It took effect.
    Done {
        /// The log index, which is the version of every row it changed.
        version: Version,
    },
    /// The node is registered.
    Registered {
        /// Its number.
        node: NodeId,
        /// Its present incarnation.
        incarnation: Incarnation,
    },
    /// The table exists.
    TableCreated {
        /// Its number.
        table: TableId,
    },
    /// The table is gone.
    TableDropped {
        /// Its former number.
        table: TableId,
        /// Number of copies that its nodes are to delete.
        copies: u32,
    },
    /// The plan is being carried out.
    PlanStarted {
        /// Number of its first migration; the others follow it.
        first: MigrationId,
        /// Number of migrations.
        count: u32,
    },
    /// The plan's moves are being undone, as far as possible.
    PlanCancelled {
        /// Moves that are undone.
        undone: u32,
        /// Moves past the point of return, which go on.
        too_late: u32,
    },
    /// The settings are changed.
    Configured {
        /// The changes.
        changes: Vec<SettingStep>,
    },
    /// The node's data counts as lost.
    NodeLost {
        /// Copies that were given up, including out-of-sync ones.
        placements: u32,
        /// In-sync copies among them.
        counting: u32,
        /// Partitions that lost their last in-sync copy.
        last_copies: u32,
    },
    /// The node is removed.
    NodeRemoved {
        /// Copies that were dropped with it; none was in sync.
        placements: u32,
    },
    /// Nothing changed.
    Refused(ErrorDetail),
}

impl Response {
    /// Returns the refusal, if it is one.
    pub fn refusal(&self) -> Option<&ErrorDetail> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Done { .. }
            | Self::Registered { .. }
            | Self::TableCreated { .. }
            | Self::TableDropped { .. }
            | Self::PlanStarted { .. }
            | Self::PlanCancelled { .. }
            | Self::Configured { .. }
            | Self::NodeLost { .. }
            | Self::NodeRemoved { .. } => None,
        }
    }
}
