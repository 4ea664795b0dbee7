//! Duties of nodes, from the coordinator, and reports of nodes to it.

use crate::ids::{Epoch, Incarnation, PartitionId, PlacementId, Seq, Version};
use crate::tables::partition::Partition;
use crate::tables::position::Position;
use crate::tables::range_limits::{ExceededLimit, LowUsage};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Desired state of one partition on a node. A push carries a node's full list; the node sets aside any replica that no
/// duty names, and only [`Duty::Unload`] deletes (PROTOCOL rule 22).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Duty {
    /// Host the replica `placement` of this partition in the role that the row assigns: leader, follower or loader.
    Host {
        /// The partition's row.
        partition: Partition,
        /// The replica on this node.
        placement: PlacementId,
    },
    /// Host it and give up the leadership of `epoch`: stop admitting, let operations in progress commit, report
    /// [`Fact::Released`].
    HandOver {
        /// The partition's row.
        partition: Partition,
        /// The replica on this node, which leads.
        placement: PlacementId,
        /// Next leader.
        to: PlacementId,
    },
    /// Delete this copy and report [`Fact::Unloaded`].
    Unload {
        /// Partition of the replica.
        partition: PartitionId,
        /// The replica on this node.
        placement: PlacementId,
    },
    /// Set this copy aside, accept no more data for it, and report [`Fact::Inspected`]: the coordinators were recovered
    /// and do not know its state (PROTOCOL rule 61).
    Inspect {
        /// The replica on this node, of any partition.
        placement: PlacementId,
    },
}

impl Duty {
    /// Returns the partition of the duty, if it names one.
    pub fn partition(&self) -> Option<PartitionId> {
        match self {
            Self::Host { partition, .. } | Self::HandOver { partition, .. } => Some(partition.id),
            Self::Unload { partition, .. } => Some(*partition),
            Self::Inspect { .. } => None,
        }
    }

    /// Returns the replica of the duty.
    pub fn placement(&self) -> PlacementId {
        match self {
            Self::Host { placement, .. }
            | Self::HandOver { placement, .. }
            | Self::Unload { placement, .. }
            | Self::Inspect { placement } => *placement,
        }
    }
}

/// Replica identity that distinguishes it from a restarted or wiped one (PROTOCOL rule 5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ReplicaName {
    /// The replica.
    pub placement: PlacementId,
    /// Incarnation of its node.
    pub incarnation: Incarnation,
}

/// A fact that a node reports to the coordinator about one of its replicas; answered after commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The partition.
    pub partition: PartitionId,
    /// The reporter's own replica of it.
    pub placement: PlacementId,
    /// The epoch in which the fact holds.
    pub epoch: Epoch,
    /// Version of the row known to the reporter; guards the requested change.
    pub version: Version,
    /// The fact.
    pub fact: Fact,
}

/// Facts that a node can report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Fact {
    /// The reporter leads and serves in this epoch.
    Online,
    /// The reporter leads; this loader holds everything committed and should become Live.
    CaughtUp {
        /// The loader.
        joiner: ReplicaName,
    },
    /// The reporter leads; these Live followers left an append unanswered for the replication time-out and should be
    /// removed from the Live set.
    Silent {
        /// All silent followers.
        followers: Vec<ReplicaName>,
    },
    /// The reporter has stopped serving in this epoch permanently.
    Released,
    /// Like [`Fact::Released`], from a participant that does not want the partition back soon.
    Declined,
    /// The reporter has deleted its replica.
    Unloaded,
    /// The reporter's replica is damaged and must no longer count as in sync.
    Damaged {
        /// Description of the damage, for the events.
        why: String,
    },
    /// The leader of this epoch lacks entries that the reporter knows as committed: one of the two lost data. The
    /// reporter stops following that leader and truncates nothing (PROTOCOL rule 10).
    LostData {
        /// The leader's replica.
        leader: PlacementId,
        /// Last position that the reporter knows as committed.
        commit: Seq,
        /// Last position at which the two logs can agree.
        agreed: Seq,
    },
    /// The reporter is named leader in this epoch but will never lead in it: a replica knows a higher epoch that the
    /// row lacks, or the reporter followed another leader in this epoch. This also releases the leadership; the next
    /// one must lie above both epochs (PROTOCOL rule 25).
    Overtaken {
        /// The higher epoch, or this one.
        by: Epoch,
    },
    /// The partition is being split, and the reporter has formed a replica of the new partition from its replica of
    /// this one, complete and on disk (PROTOCOL rule 38).
    Formed {
        /// Version of the row in which the split began.
        attempt: Version,
        /// The formed replica.
        copy: PlacementId,
        /// Position in this partition's log of the entry that gave up the keys.
        position: Position,
    },
    /// The partition is being split, and the reporter's replica of the new partition has every key and receives all
    /// writes to the reporter's replica of this one. The fact only shows when the keys can be given up with the
    /// shortest pause; safety does not depend on it.
    Mirroring {
        /// Version of the row in which the split began.
        attempt: Version,
        /// The replica in formation.
        copy: PlacementId,
    },
    /// The reporter leads, and its log holds all rows of the absorbed partition, committed (PROTOCOL rule 47).
    Absorbed {
        /// Version of the row in which the merge began.
        attempt: Version,
    },
    /// The reporter leads, and the partition to absorb is larger than a log accepts.
    Unabsorbable {
        /// Version of the row in which the merge began.
        attempt: Version,
        /// Bytes found before the count stopped.
        bytes: u64,
    },
    /// The reporter's copy, which is not in sync, was reset to be copied again; none of its data is complete.
    Emptied,
    /// The reporter leads, and the partition has been small for a while: it could be merged with a small neighbour.
    Undersized(LowUsage),
    /// End of the log of the reporter's replica, which was set aside by [`Duty::Inspect`]. The report's epoch is the
    /// highest that the replica has persisted; its version is the incarnation in which it is reported.
    Inspected {
        /// Last entry of the replica.
        last: Position,
    },
    /// The reporter leads and found the partition, in that version of its row, above a limit of its table: it should be
    /// split.
    Outgrown {
        /// First key of the new partition: within the range, and not its first key.
        at: Bytes,
        /// The exceeded limit.
        by: ExceededLimit,
    },
}
