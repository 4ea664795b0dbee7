//! Edits of a partition's row, made under one guard.

use archon_types::{Epoch, Incarnation, Outgrown, PartitionId, Placement, PlacementId, Position, Seq, Version};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Edits of one row, in order, under one guard: the version the row must have. All of them hold or none; the row gets
/// the log index as its version once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionChange {
    /// Which partition.
    pub partition: PartitionId,
    /// The version the row must have.
    pub if_version: Version,
    /// What changes.
    pub edits: Vec<Edit>,
}

impl PartitionChange {
    /// One edit of one row.
    pub fn one(partition: PartitionId, if_version: Version, edit: Edit) -> Self {
        Self { partition, if_version, edits: vec![edit] }
    }
}

/// How a leadership came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// Its holder said that it stopped, for good (PROTOCOL rule 12).
    Released,
    /// It was withdrawn and the lease that covered it is over (rules 15, 16); the holder may not know yet.
    Lapsed,
}

/// One edit of a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Edit {
    /// First assignment: all copies are Live, for there is nothing to copy yet; the first one leads.
    Assign(Vec<Placement>),
    /// Ends the leadership, naming nobody.
    Vacate(Ending),
    /// Grants the leadership to a Live copy, in that life of its node. Whoever led before has released or lapsed.
    Lead {
        /// Who leads.
        placement: PlacementId,
        /// The life of its node.
        incarnation: Incarnation,
        /// How the present leadership ended, if there is one.
        ending: Ending,
    },
    /// Adds a copy, in state Load, as the target of a migration.
    Add(Placement),
    /// Adds a copy, in state Load, in place of one that is missing, failed or to go; and why, for the events.
    Repair(Placement, String),
    /// Load → Live, in that life of its node (PROTOCOL rule 5).
    Promote(PlacementId, Incarnation),
    /// Live → Load, in that life of its node; never below `min_in_sync`, never the leader.
    Demote(PlacementId, Incarnation),
    /// Live → lost, because the copy is damaged: also below `min_in_sync`, also the leader, which has stopped. Of a copy
    /// in state Load it is remembered that nothing whole is left of it.
    Lose(PlacementId, String),
    /// A copy in state Load has thrown its data away to be copied anew: nothing whole is left of it.
    Emptied(PlacementId),
    /// Load or Live → Unload: to be deleted. Never the leader; a Live one only while `min_in_sync` Live copies on live
    /// nodes remain without it (rule 7).
    Unload(PlacementId),
    /// As `Unload`, of a copy that is not needed any more; and why, for the events.
    Retire(PlacementId, String),
    /// Removes a copy that is deleted, or that stood on a lost node and does not count.
    Forget(PlacementId),
    /// The leader serves in this epoch.
    Online(Epoch),
    /// The former holder of this epoch said that it stopped.
    Settle(Epoch),
    /// A copy knows this epoch, above the row's: what is granted next lies above it (rule 25). Goes before `Lead` or `Vacate`.
    Surpass(Epoch),
    /// This copy contradicts its leader of that epoch: one of the two lost data. For the events; only the version changes.
    Dispute {
        /// Who says so.
        placement: PlacementId,
        /// The leader's copy.
        leader: PlacementId,
        /// The epoch it leads.
        epoch: Epoch,
        /// Up to here the copy knows the log as committed.
        commit: Seq,
        /// Up to here at most the two logs agree.
        agreed: Seq,
    },
    /// Its keys from `at` on are to become those of a new partition, with a copy beside each copy of it.
    Split {
        /// The first key that is given up.
        at: Bytes,
        /// The number of the new partition: the table's next one.
        right: u32,
        /// Nobody asked for it: the partition is above this limit of its table.
        outgrown: Option<Outgrown>,
    },
    /// A copy of the partition that is split off has every key and gets whatever is written, in that life of its node.
    Mirroring {
        /// The version in which the split began.
        attempt: Version,
        /// Which copy.
        placement: PlacementId,
        /// The life of its node.
        incarnation: Incarnation,
    },
    /// The leader is to give the keys up now: the copies of the new partition have them.
    Cut,
    /// A copy of the partition that is split off is whole, in that life of its node.
    Formed {
        /// The version in which the split began.
        attempt: Version,
        /// Which copy.
        placement: PlacementId,
        /// The life of its node.
        incarnation: Incarnation,
        /// Where the entry stands in the log of this partition with which it gave the keys up.
        position: Position,
    },
    /// The split is done: the keys change hands, and this copy, which is formed, leads the new partition.
    Part {
        /// Who leads.
        leader: PlacementId,
        /// The life of its node.
        incarnation: Incarnation,
    },
    /// The split is given up, and why, for the events. Its copies are to be deleted.
    AbandonSplit(String),
    /// The partition that begins where this one ends is to be merged into it.
    Merge {
        /// That partition's number.
        right: u32,
        /// The version that its row must have.
        right_version: Version,
        /// How many bytes the two hold together, if they are merged by themselves for that.
        undersized_bytes: Option<u64>,
    },
    /// The merge is done: the keys change hands, and the other partition is none any more.
    Widen {
        /// The version in which the merge began.
        attempt: Version,
    },
    /// The merge is given up, and why, for the events: both partitions keep their keys.
    AbandonMerge(String),
    /// The answer "no" to what the leader asked for: nothing changes but the version (rule 3).
    Refuse,
}
