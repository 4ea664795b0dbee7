//! Inputs of a replica from the shell.

use crate::message::{Entry, Message, Position};
use archon_types::{Epoch, Incarnation, NodeId, Partition, PartitionId, PlacementId, Seq, Version};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Identity of a replica, for the lifetime of its process (except [`Input::Renew`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The partition.
    pub partition: PartitionId,
    /// The copy of it.
    pub placement: PlacementId,
    /// The node that holds the copy.
    pub node: NodeId,
    /// The node's present registration.
    pub incarnation: Incarnation,
}

/// A stretch of the log written in one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The epoch of its entries.
    pub epoch: Epoch,
    /// Its first position; it ends where the next run begins, or at the end of the log.
    pub first: Seq,
}

/// State of the disk when the replica was opened; everything in it must be durable (rule 20).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveredState {
    /// The highest epoch persisted.
    pub epoch: Epoch,
    /// The position before the first entry held: [`Position::ZERO`], or where the log was trimmed or a copy began.
    pub base: Position,
    /// The epochs of the entries after `base`, ascending, at most one run per epoch.
    pub runs: Vec<Run>,
    /// The last entry held; `base.seq` when there is none.
    pub last: Seq,
    /// The highest position known to be committed (at least what the engine holds).
    pub commit: Seq,
}

impl RecoveredState {
    /// Returns the last entry held, with its epoch.
    pub fn last_position(&self) -> Position {
        self.runs.last().map_or(self.base, |run| Position::new(run.epoch, self.last))
    }
}

/// Reason for refusing recovered state: it contradicts itself, so the placement's data must not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoveredError {
    /// The log ends before it begins.
    #[error("the log of {partition} ends at {last}, before its base {base}; discard this replica and reload it")]
    EndsBeforeBase {
        /// The partition.
        partition: PartitionId,
        /// The end found.
        last: Seq,
        /// The base found.
        base: Seq,
    },
    /// A run is out of order, or the runs do not begin right after the base.
    #[error(
        "the log of {partition} has epoch {epoch} beginning at {first}, out of order; discard this replica and reload it"
    )]
    RunsOutOfOrder {
        /// The partition.
        partition: PartitionId,
        /// The run's epoch.
        epoch: Epoch,
        /// The run's beginning.
        first: Seq,
    },
    /// An entry has a higher epoch than was ever persisted.
    #[error(
        "the log of {partition} holds epoch {found}, but only {persisted} was persisted; discard this replica and reload it"
    )]
    EpochTooHigh {
        /// The partition.
        partition: PartitionId,
        /// The epoch found in the log.
        found: Epoch,
        /// The epoch persisted.
        persisted: Epoch,
    },
    /// Committed entries are missing.
    #[error("{partition} is committed up to {commit}, but its log ends at {last}; discard this replica and reload it")]
    CommitMissing {
        /// The partition.
        partition: PartitionId,
        /// The commit position found.
        commit: Seq,
        /// The end of the log.
        last: Seq,
    },
}

/// Bounds on one replica's memory and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most bytes of entries in one message (a single larger entry is still sent, alone).
    pub append_bytes_max: usize,
    /// Most entries in one message, at least 1.
    pub append_entries_max: usize,
    /// Most bytes sent to one follower and not acknowledged.
    pub in_flight_bytes_max: usize,
    /// Most messages sent to one follower and not acknowledged, at least 1.
    pub in_flight_appends_max: usize,
    /// Most bytes sent to one replica that is not in sync and not acknowledged: catch-up proceeds at the pace of its
    /// acknowledgements, and leaves room for replicas that writes wait for.
    pub catch_up_bytes_max: usize,
    /// Most bytes proposed and not committed; more is refused as overload.
    pub uncommitted_bytes_max: usize,
    /// Most proposals not committed; more is refused as overload.
    pub uncommitted_entries_max: usize,
    /// Bytes of committed entries kept in memory for followers; older ones are read with `ReadLog`.
    pub recent_bytes_max: usize,
    /// Most bytes a follower accepts before its disk has caught up; appends beyond it are left unanswered.
    pub unpersisted_bytes_max: usize,
    /// Most reads waiting for a confirmation.
    pub confirms_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            append_bytes_max: 1024 * 1024,
            append_entries_max: 4_096,
            in_flight_bytes_max: 8 * 1024 * 1024,
            in_flight_appends_max: 64,
            catch_up_bytes_max: 1024 * 1024,
            uncommitted_bytes_max: 16 * 1024 * 1024,
            uncommitted_entries_max: 65_536,
            recent_bytes_max: 1024 * 1024,
            unpersisted_bytes_max: 16 * 1024 * 1024,
            confirms_max: 65_536,
        }
    }
}

/// Location of another replica of the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its node.
    pub node: NodeId,
    /// Present registration of that node, as far as known.
    pub incarnation: Incarnation,
    /// True if the coordinator has failed the node: if it does not answer here either, it is no longer waited for.
    pub failed: bool,
}

/// Time-outs of a replica, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time for which a follower may leave an append unanswered before its leader asks to drop it, and for which a
    /// request to the coordinator stays unanswered before it is repeated. At least 1.
    pub replication_timeout_ms: u64,
    /// Time for which a Live follower may receive nothing before its leader asks for a sign of life, so that a dead one
    /// is found before a write has to wait for it. At least 1; longer where very many partitions are led.
    pub keep_alive_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self { replication_timeout_ms: 1_000, keep_alive_ms: 1_000 }
    }
}

impl Timing {
    /// Returns the time for which a leader waits for an answer before it asks again.
    pub(crate) const fn resend_ms(self) -> u64 {
        let quarter = self.replication_timeout_ms / 4;
        if quarter < 10 { 10 } else { quarter }
    }

    /// Returns the time for which a follower on a failed node may owe an answer. The node was silent for the failure
    /// time-out already; this only distinguishes a dead one from one that is cut off from the coordinator alone.
    pub(crate) const fn failed_timeout_ms(self) -> u64 {
        let tenth = self.replication_timeout_ms / 10;
        if tenth < 10 { 10 } else { tenth }
    }
}

/// Coordinator's decisions about the partition, as pushed to this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// The partition's row. Ordered by (epoch, version): an older one is ignored (rule 4).
    pub row: Partition,
    /// Locations of the other replicas. May change without the row (a peer restarted): incarnations only rise.
    pub peers: BTreeMap<PlacementId, Peer>,
    /// The time-outs in force.
    pub timing: Timing,
}

/// Event for a replica. Times are on a clock that never falls, and are given with each step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// The coordinator's duty for this placement. Push it whenever the row *or* a peer's incarnation changed; repeats
    /// are harmless.
    Configure(Configuration),
    /// The coordinator asks this leader of `epoch` to give up the leadership.
    HandOver {
        /// The epoch to end; another one is ignored.
        epoch: Epoch,
        /// The next leader.
        to: PlacementId,
    },
    /// Cancels the hand-over of `epoch` (its duty is `Host` again). Without effect once released or withdrawn.
    KeepLeading {
        /// The epoch to continue in.
        epoch: Epoch,
    },
    /// Ends the leadership of `epoch`, which no lease covers or will cover again (rule 15): it is given up as for
    /// `HandOver`, but irrevocably, and after the replication time-out even if pending proposals cannot be committed.
    Withdrawn {
        /// The epoch to end; another one is ignored.
        epoch: Epoch,
    },
    /// An entry to log. Answered by `Accepted` or `Refuse`; once accepted, by `Commit` or `Abandon`.
    Propose {
        /// The shell's number for it.
        ticket: u64,
        /// The entry.
        entry: Bytes,
    },
    /// Everything up to this `Persist` is durable. Tokens complete in order; naming the newest is enough.
    Persisted {
        /// The token of the `Persist`.
        token: u64,
    },
    /// A message arrived.
    Message(Message),
    /// The answer to `ReadLog`: contiguous entries from its `from`, at least one; none if they are no longer there.
    LogRead {
        /// The number of the `ReadLog`.
        read: u64,
        /// The replica it was for.
        reader: PlacementId,
        /// The entries found.
        entries: Vec<Entry>,
    },
    /// Completes a copy: all pages are durable in the engine. It holds at least every effect up to `at`, and nothing
    /// uncommitted.
    Copied {
        /// The number of the `StartCopy`.
        copy: u64,
        /// Position at which the leader pinned its log, which is followed from the next one.
        at: Position,
        /// The version of the row under which the leader gave the copy.
        version: Version,
    },
    /// The log up to here was trimmed. Never beyond the commit position (the rest is ignored).
    Trimmed {
        /// The last trimmed position.
        upto: Seq,
    },
    /// A read waits at a leader without a lease: confirm the leadership. Answered by `ConfirmDone`.
    Confirm {
        /// The shell's number for it.
        ticket: u64,
    },
    /// True if the node holds a valid lease that covers this leadership.
    Lease(bool),
    /// True if the disk accepts no further data (it is full): new proposals are refused. The shell must retry `Persist`s
    /// already emitted, in order.
    ReadOnly(bool),
    /// True while this node's memtables are overfull with rows that wait for its engine. A leader's entries are then
    /// left unanswered, so that it waits. Their commit position is taken, as only committed rows leave memory.
    EngineLags(bool),
    /// The node registered again within the same process, which ends all its leaderships (rule 8).
    Renew {
        /// The node's number, which another generation of the coordinators may have changed.
        node: NodeId,
        /// The new registration.
        incarnation: Incarnation,
    },
    /// Time passed; due every few tens of milliseconds while [`crate::Replica::wants_ticks`].
    Tick,
}
