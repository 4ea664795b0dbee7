//! Outputs of a replica, carried out in the order given.

use crate::message::{Entry, Message, Position, ReplicaAddress};
use archon_types::{Epoch, ErrorKind, PlacementId, Report, Seq};

/// One change to what is stored, in the order given; a `Persist` is applied as a whole or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Store this epoch.
    Epoch(Epoch),
    /// Store these entries, contiguous, right after what is stored. Their epochs must be stored with them.
    Entries(Vec<Entry>),
    /// Remove every entry after this position. The window of entries not yet applied ends here too.
    Cut {
        /// The last position kept.
        after: Seq,
    },
    /// Remove the whole log; it restarts after `base`. Everything up to `base` counts as committed and applied.
    Reset {
        /// The position before the next entry.
        base: Position,
    },
}

/// Condition that an operator must know of.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Alarm {
    /// The leader lacks entries that this replica knows to be committed: one of the two lost data. Nothing is cut.
    #[error(
        "leader {leader:?} of epoch {epoch} has no entry {commit} that placement {own} knows as committed (its log agrees up to {agreed} at most); \
         keep both replicas and compare them"
    )]
    LostData {
        /// The leader.
        leader: ReplicaAddress,
        /// Its epoch.
        epoch: Epoch,
        /// The refusing replica.
        own: PlacementId,
        /// Position up to which it knows the log as committed.
        commit: Seq,
        /// Last position up to which the two logs may agree.
        agreed: Seq,
    },
}

/// Action of the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Make these records durable, after all earlier ones; then give `Persisted`. A follower's entries also enter the
    /// shell's window of entries to apply, and a `Cut` shortens that window.
    Persist {
        /// Its number, rising.
        token: u64,
        /// The records to store.
        records: Vec<Record>,
    },
    /// Deliver this message, or lose it.
    Send(Message),
    /// The proposal has a position in the log.
    Accepted {
        /// The proposal.
        ticket: u64,
        /// Its position.
        at: Position,
    },
    /// The proposal has had no effect and never will.
    Refuse {
        /// The proposal.
        ticket: u64,
        /// The reason.
        kind: ErrorKind,
    },
    /// Reports accepted proposals with an unknown outcome: the next leader may still commit their entries.
    Abandon {
        /// The proposals, in order of position.
        tickets: Vec<u64>,
    },
    /// Everything up to here is committed: apply it in order, then answer (a leader checks the lease first).
    Commit {
        /// The commit position.
        upto: Seq,
    },
    /// True if this replica may evaluate and answer operations.
    Serve(bool),
    /// Report this to the coordinator; repeated here until the configuration shows that it was received.
    Report(Report),
    /// Read entries that are no longer in memory; answer by `LogRead`.
    ReadLog {
        /// Its number.
        read: u64,
        /// The replica it is for.
        reader: PlacementId,
        /// First position.
        from: Seq,
        /// Last position.
        upto: Seq,
        /// Approximate bound on bytes.
        bytes_max: usize,
    },
    /// Clear this placement's space, then pull a copy from the leader; answer by `Copied`. Replaces any other copy.
    StartCopy {
        /// Its number.
        copy: u64,
        /// The source.
        leader: ReplicaAddress,
        /// The leader's epoch.
        epoch: Epoch,
    },
    /// Stop that copy: no further page of it may be written.
    StopCopy {
        /// Its number.
        copy: u64,
    },
    /// Reports that reads were confirmed (answer them from committed rows) or not (refuse them, retryably).
    ConfirmDone {
        /// The reads.
        tickets: Vec<u64>,
        /// True if the leadership held after they arrived.
        ok: bool,
    },
    /// Log it and raise an alarm.
    Alarm(Alarm),
}
