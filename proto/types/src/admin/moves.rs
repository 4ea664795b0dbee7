//! Moves: their objects, reasons and phases.

use crate::admin::word::words;
use serde::{Deserialize, Serialize};

words! {
    /// Object of a move.
    #[derive(Serialize, Deserialize)]
    pub enum MoveKind: "kind of move" {
        /// A copy, and the leadership if that copy leads.
        Copy = "copy",
        /// The leadership alone, to a copy that counts already: nothing is copied.
        Leadership = "leadership",
    }
}

words! {
    /// Phase of a move.
    #[non_exhaustive]
    pub enum MovePhase: "phase of a move" {
        /// It waits until its nodes copy less.
        Queued = "queued",
        /// The copy is being made.
        Copying = "copying",
        /// The copy counts, and the source still leads; or the leadership is about to be handed over.
        InSync = "in_sync",
        /// The new leader takes over.
        HandOver = "hand_over",
        /// The old copy is being deleted.
        Cleanup = "cleanup",
        /// It reached its goal.
        Done = "done",
        /// It was undone at the operator's wish.
        Cancelled = "cancelled",
        /// It was given up because the cluster changed meanwhile and it had lost its point.
        Superseded = "superseded",
        /// It could not go on, and was undone.
        Failed = "failed",
    }
}

impl MovePhase {
    /// Returns true if the move has ended, successfully or not.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done) || self.is_aborted()
    }

    /// Returns true if the move has ended without reaching its goal: it was cancelled or superseded, or failed.
    pub const fn is_aborted(self) -> bool {
        matches!(self, Self::Cancelled | Self::Superseded | Self::Failed)
    }
}

words! {
    /// Reason for a planned move.
    #[non_exhaustive]
    pub enum MoveCode: "reason for a move" {
        /// The node has more copies than its share.
        Balance = "balance",
        /// The node leads more for its weight than the one that is to lead.
        Lead = "lead",
        /// The other node leads as many, and passes one on to a node that leads fewer.
        PassOn = "pass_on",
        /// Only full nodes may take a copy that is missing: the move makes room on one of them.
        MakeRoom = "make_room",
    }
}

words! {
    /// Goal that a plan cannot reach.
    #[non_exhaustive]
    pub enum UnmetCode: "unmet goal" {
        /// The node is to be emptied, and copies of it have nowhere to go.
        NotEmptied = "not_emptied",
        /// The node keeps more than its share: no other node may take more.
        AboveShare = "above_share",
        /// The table's partitions have no copies yet.
        NotAssigned = "not_assigned",
        /// Partitions of the table keep two copies in one zone.
        ZonesDoubled = "zones_doubled",
        /// The node is not alive, so its copies are not moved.
        NotAlive = "not_alive",
    }
}
