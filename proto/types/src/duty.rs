//! What the coordinator asks of a node (duties) and what a node tells it (reports).

use crate::ids::{Epoch, Incarnation, PartitionId, PlacementId, Seq, Version};
use crate::partition::Partition;
use crate::position::Position;
use crate::range_limits::{Outgrown, Undersized};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What a node should do about one partition. A push carries a node's full list; anything it holds that no duty names
/// is set aside, and only [`Duty::Unload`] deletes (PROTOCOL rule 22).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Duty {
    /// Hold the copy `placement` of this partition and be in it what the row says: leader, follower or loader.
    Host {
        /// The partition's row.
        partition: Partition,
        /// The copy on this node.
        placement: PlacementId,
    },
    /// Host it, and give up the leadership of `epoch`: stop admitting, let what is under way commit, report
    /// [`Fact::Released`].
    HandOver {
        /// The partition's row.
        partition: Partition,
        /// The copy on this node, which leads.
        placement: PlacementId,
        /// Who is to lead next.
        to: PlacementId,
    },
    /// Delete this copy and report [`Fact::Unloaded`].
    Unload {
        /// The partition it is a copy of.
        partition: PartitionId,
        /// The copy on this node.
        placement: PlacementId,
    },
    /// Set this copy aside, take nothing in for it any more, and report [`Fact::Inspected`]: the coordinators were recovered and
    /// do not know what became of it (PROTOCOL rule 61).
    Inspect {
        /// The copy on this node, of whatever partition.
        placement: PlacementId,
    },
}

impl Duty {
    /// The partition it is about, if it names one.
    pub fn partition(&self) -> Option<PartitionId> {
        match self {
            Self::Host { partition, .. } | Self::HandOver { partition, .. } => Some(partition.id),
            Self::Unload { partition, .. } => Some(*partition),
            Self::Inspect { .. } => None,
        }
    }

    /// The copy it is about.
    pub fn placement(&self) -> PlacementId {
        match self {
            Self::Host { placement, .. }
            | Self::HandOver { placement, .. }
            | Self::Unload { placement, .. }
            | Self::Inspect { placement } => *placement,
        }
    }
}

/// A replica named so that a restarted or wiped one cannot be mistaken for it (PROTOCOL rule 5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ReplicaName {
    /// The copy.
    pub placement: PlacementId,
    /// The life of its node.
    pub incarnation: Incarnation,
}

/// A fact a node tells the coordinator about one of its replicas, answered after commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The partition.
    pub partition: PartitionId,
    /// The reporter's own copy of it.
    pub placement: PlacementId,
    /// The epoch in which the fact holds.
    pub epoch: Epoch,
    /// The row's version as the reporter knows it; guards the change it asks for.
    pub version: Version,
    /// The fact.
    pub fact: Fact,
}

/// What can be reported.
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
    /// dropped from the Live set.
    Silent {
        /// All of them.
        followers: Vec<ReplicaName>,
    },
    /// The reporter has stopped serving in this epoch, for good.
    Released,
    /// As [`Fact::Released`], of a participant that does not want the partition back soon.
    Declined,
    /// The reporter has deleted its copy.
    Unloaded,
    /// The reporter's copy is damaged and must not count any more.
    Damaged {
        /// What was found, for the events.
        why: String,
    },
    /// The leader of this epoch lacks entries that the reporter knows as committed: one of the two lost data. The
    /// reporter follows that leader no more, and cuts nothing (PROTOCOL rule 10).
    LostData {
        /// The leader's copy.
        leader: PlacementId,
        /// Up to here the reporter knows the log as committed.
        commit: Seq,
        /// Up to here at most the two logs agree.
        agreed: Seq,
    },
    /// The reporter is named leader in this epoch and does not lead in it, for good: a copy knows a higher epoch, of which
    /// the row says nothing, or the reporter followed another one in this epoch. That is its release as well; the next
    /// leadership must lie above both (PROTOCOL rule 25).
    Overtaken {
        /// The higher epoch, or this one.
        by: Epoch,
    },
    /// The partition is being split, and the reporter has formed a copy of the one that is split off from its own copy of this
    /// one: it is whole, on the disk (PROTOCOL rule 38).
    Formed {
        /// The version of the row in which the split began.
        attempt: Version,
        /// The copy that was formed.
        copy: PlacementId,
        /// Where the entry stands in this partition's log with which it gave the keys up.
        position: Position,
    },
    /// The partition is being split, and the reporter's copy of the one that is split off has every key by now and gets whatever
    /// is written to the reporter's copy of this one. It says when the keys may be given up with the least ado, and nothing that
    /// must be true rests on it.
    Mirroring {
        /// The version of the row in which the split began.
        attempt: Version,
        /// The copy that is formed.
        copy: PlacementId,
    },
    /// The reporter leads, and its log holds all rows of the partition that it absorbs, committed (PROTOCOL rule 47).
    Absorbed {
        /// The version of the row in which the merge began.
        attempt: Version,
    },
    /// The reporter leads, and the partition that it is to absorb is larger than what a log takes in.
    Unabsorbable {
        /// The version of the row in which the merge began.
        attempt: Version,
        /// How much was found, in bytes: the rest was not looked at.
        bytes: u64,
    },
    /// The reporter's copy, which does not count, has thrown away what it held to be copied anew: nothing whole is left of
    /// it.
    Emptied,
    /// The reporter leads, and the partition has been small for a while: it might be merged with a neighbour that is, too.
    Undersized(Undersized),
    /// Where the log of the reporter's copy ends, which it was told to set aside ([`Duty::Inspect`]). The report's epoch is the
    /// highest that the copy has persisted, its version the life in which it is told.
    Inspected {
        /// The last entry that it holds.
        last: Position,
    },
    /// The reporter leads, and found the partition above a limit of its table, in that version of its row: it should be split.
    Outgrown {
        /// The first key that another partition should have: within the range, and not its first.
        at: Bytes,
        /// By what.
        by: Outgrown,
    },
}
