//! Edits of a partition's row, made under one guard.

use archon_types::{Epoch, ExceededLimit, Incarnation, PartitionId, Placement, PlacementId, Position, Seq, Version};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Edits of one row, in order, under one guard: the version the row must have. All of them pass or none; the row gets
/// the log index as its version once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionChange {
    /// The partition.
    pub partition: PartitionId,
    /// The version the row must have.
    pub if_version: Version,
    /// The edits.
    pub edits: Vec<Edit>,
}

impl PartitionChange {
    /// Returns a change with one edit.
    pub fn one(partition: PartitionId, if_version: Version, edit: Edit) -> Self {
        Self { partition, if_version, edits: vec![edit] }
    }
}

/// Cause of the end of a leadership.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LeadershipEnd {
    /// Its holder reported that it stopped for good (PROTOCOL rule 12).
    Released,
    /// It was withdrawn and its lease has ended (rules 15, 16); the holder may not know yet.
    Lapsed,
}

/// One edit of a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Edit {
    /// First assignment: all copies are Live, since there is no data to copy; the first one leads.
    Assign(Vec<Placement>),
    /// Ends the leadership without a successor.
    Vacate(LeadershipEnd),
    /// Grants the leadership to a Live copy, in that incarnation of its node. The previous leader has released or
    /// lapsed.
    Lead {
        /// The new leader.
        placement: PlacementId,
        /// The incarnation of its node.
        incarnation: Incarnation,
        /// Cause of the end of the present leadership, if there is one.
        ending: LeadershipEnd,
    },
    /// Adds a copy, in state Load, as the target of a migration.
    Add(Placement),
    /// Adds a copy, in state Load, in place of one that is missing, failed or to go; with the reason for the events.
    Repair(Placement, String),
    /// Load → Live, in that incarnation of its node (PROTOCOL rule 5).
    Promote(PlacementId, Incarnation),
    /// Live → Load, in that incarnation of its node; never below `min_in_sync`, never the leader.
    Demote(PlacementId, Incarnation),
    /// Live → lost, because the copy is damaged: also below `min_in_sync`, also the leader, which has stopped. For a
    /// copy in state Load it is recorded that no whole data is left.
    Lose(PlacementId, String),
    /// A copy in state Load has discarded its data to be copied again: no whole data is left.
    Emptied(PlacementId),
    /// Load or Live → Unload: to be deleted. Never the leader; a Live one only while `min_in_sync` Live copies on live
    /// nodes remain without it (rule 7).
    Unload(PlacementId),
    /// Like `Unload`, for a copy that is no longer needed; with the reason for the events.
    Retire(PlacementId, String),
    /// Removes a copy that is deleted, or an out-of-sync copy of a lost node.
    Forget(PlacementId),
    /// The leader serves in this epoch.
    Online(Epoch),
    /// The former holder of this epoch reported that it stopped.
    Settle(Epoch),
    /// A copy knows this epoch, above the row's: the next grant lies above it (rule 25). Precedes `Lead` or `Vacate`.
    Surpass(Epoch),
    /// This copy contradicts its leader of that epoch: one of the two lost data. For the events; only the version changes.
    Dispute {
        /// The reporting copy.
        placement: PlacementId,
        /// The leader's copy.
        leader: PlacementId,
        /// The epoch it leads.
        epoch: Epoch,
        /// The copy knows the log as committed up to here.
        commit: Seq,
        /// The two logs agree at most up to here.
        agreed: Seq,
    },
    /// Starts a split: the keys from `at` on move to a new partition, with a copy beside each copy of this one.
    Split {
        /// The first key to move.
        at: Bytes,
        /// The number of the new partition: the table's next one.
        right: u32,
        /// The exceeded limit of the table, if the split is automatic.
        outgrown: Option<ExceededLimit>,
    },
    /// A copy of the new partition has every key and receives all writes, in that incarnation of its node.
    Mirroring {
        /// The version in which the split began.
        attempt: Version,
        /// The copy.
        placement: PlacementId,
        /// The incarnation of its node.
        incarnation: Incarnation,
    },
    /// Orders the leader to give the keys up: the copies of the new partition have them.
    Cut,
    /// A copy of the new partition is whole, in that incarnation of its node.
    Formed {
        /// The version in which the split began.
        attempt: Version,
        /// The copy.
        placement: PlacementId,
        /// The incarnation of its node.
        incarnation: Incarnation,
        /// Position of the entry in this partition's log that gave the keys up.
        position: Position,
    },
    /// Completes the split: the keys move, and this formed copy leads the new partition.
    Part {
        /// The new leader.
        leader: PlacementId,
        /// The incarnation of its node.
        incarnation: Incarnation,
    },
    /// Abandons the split, with the reason for the events. Its copies are deleted.
    AbandonSplit(String),
    /// Starts a merge of the partition that begins where this one ends into this one.
    Merge {
        /// Number of that partition.
        right: u32,
        /// The version that its row must have.
        right_version: Version,
        /// Bytes of both together, if the merge is automatic.
        undersized_bytes: Option<u64>,
    },
    /// Completes the merge: the keys move, and the other partition is removed.
    Widen {
        /// The version in which the merge began.
        attempt: Version,
    },
    /// Abandons the merge, with the reason for the events: both partitions keep their keys.
    AbandonMerge(String),
    /// Rejects the leader's request: only the version changes (rule 3).
    Refuse,
}
