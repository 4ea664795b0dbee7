//! Moves: their objects, reasons and phases.

use crate::admin::open_enum::words;
use serde::{Deserialize, Serialize};

words! {
    /// Object of a move.
    #[derive(Serialize, Deserialize)]
    pub enum MoveKind: "kind of move" {
        /// A replica, with the leadership if it leads.
        Copy = "copy",
        /// Only the leadership, to a replica that is already in sync: no data is copied.
        Leadership = "leadership",
    }
}

words! {
    /// Phase of a move.
    #[non_exhaustive]
    pub enum MovePhase: "phase of a move" {
        /// Waits for the copy limits of its nodes.
        Queued = "queued",
        /// The new replica is being loaded.
        Copying = "copying",
        /// The new replica is in sync and the source still leads; or the leadership is about to be handed over.
        InSync = "in_sync",
        /// The new leader is taking over.
        HandOver = "hand_over",
        /// The old replica is being deleted.
        Cleanup = "cleanup",
        /// Completed.
        Done = "done",
        /// Cancelled by an operator and undone.
        Cancelled = "cancelled",
        /// Abandoned because a change of the cluster made it pointless.
        Superseded = "superseded",
        /// Failed and undone.
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
        /// The node holds more replicas than its share.
        Balance = "balance",
        /// The node leads more partitions, relative to its weight, than the target.
        Lead = "lead",
        /// The target leads equally many, and passes one on to a node that leads fewer.
        PassOn = "pass_on",
        /// Only full nodes may take a missing replica: the move frees capacity on one of them.
        MakeRoom = "make_room",
    }
}

words! {
    /// Goal that a plan cannot reach.
    #[non_exhaustive]
    pub enum UnmetCode: "unmet goal" {
        /// The node is being drained, and no other node can take some of its replicas.
        NotEmptied = "not_emptied",
        /// The node keeps more than its share, because no other node may take more.
        AboveShare = "above_share",
        /// The partitions of the table have no replicas yet.
        NotAssigned = "not_assigned",
        /// Partitions of the table keep two replicas in one zone.
        ZonesDoubled = "zones_doubled",
        /// The node is not alive, so its replicas are not moved.
        NotAlive = "not_alive",
    }
}
