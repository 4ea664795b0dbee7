//! The outcome of a committed command.

use crate::migration::MigrationId;
use archon_types::{ErrorDetail, Incarnation, NodeId, SettingStep, TableId, Version};
use serde::{Deserialize, Serialize};

/// The outcome of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Response {
    /// It holds.
    Done {
        /// The log index, which is the version of every row it changed.
        version: Version,
    },
    /// The node is registered.
    Registered {
        /// Its number.
        node: NodeId,
        /// Its present life.
        incarnation: Incarnation,
    },
    /// The table exists.
    TableCreated {
        /// Its number.
        table: TableId,
    },
    /// The table is gone.
    TableDropped {
        /// The number it had.
        table: TableId,
        /// Copies that its nodes are to delete.
        copies: u32,
    },
    /// The plan is being carried out.
    PlanStarted {
        /// Number of its first migration; the others follow it.
        first: MigrationId,
        /// How many there are.
        count: u32,
    },
    /// The plan's moves are being undone, as far as they can be.
    PlanCancelled {
        /// Moves that are undone.
        undone: u32,
        /// Moves past the point of return, which go on.
        too_late: u32,
    },
    /// The settings are changed.
    Configured {
        /// What changed.
        changes: Vec<SettingStep>,
    },
    /// The node's data counts as lost.
    NodeLost {
        /// Copies that were given up, those that did not count included.
        placements: u32,
        /// Of these, copies that counted.
        counting: u32,
        /// Partitions that lost their last copy that counted.
        last_copies: u32,
    },
    /// The node is forgotten.
    NodeRemoved {
        /// Copies that went with it; none of them counted.
        placements: u32,
    },
    /// Nothing changed.
    Refused(ErrorDetail),
}

impl Response {
    /// The refusal, if it is one.
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
