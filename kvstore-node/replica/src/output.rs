//! What a replica wants done. Outputs are carried out in the order given.

use crate::message::{Entry, Message, Position, ReplicaAddress};
use archon_types::{Epoch, ErrorKind, PlacementId, Report, Seq};

/// One change to what is stored, in the order given; a `Persist` is applied as a whole or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Remember this epoch.
    Epoch(Epoch),
    /// Store these entries, contiguous, right after what is stored. Their epochs must be stored with them.
    Entries(Vec<Entry>),
    /// Forget every entry after this position. The window of entries not yet applied ends here too.
    Cut {
        /// The last position kept.
        after: Seq,
    },
    /// Forget the whole log; it begins anew after `base`. Everything up to `base` counts as committed and applied.
    Reset {
        /// The position before the next entry.
        base: Position,
    },
}

/// Something an operator must hear of.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Alarm {
    /// The leader lacks entries that this replica knows to be committed: one of the two lost data. Nothing is cut.
    #[error(
        "leader {leader:?} of epoch {epoch} has no entry {commit} that placement {own} knows as committed (its log agrees up to {agreed} at most); \
         keep both copies and compare them"
    )]
    LostData {
        /// The leader.
        leader: ReplicaAddress,
        /// Its epoch.
        epoch: Epoch,
        /// The refusing replica.
        own: PlacementId,
        /// Up to here it knows the log as committed.
        commit: Seq,
        /// Up to here at most the two logs agree.
        agreed: Seq,
    },
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Make these records durable, after all earlier ones; then give `Persisted`. A follower's entries also enter the
    /// shell's window of entries to apply, and a `Cut` shortens that window.
    Persist {
        /// Its number, rising.
        token: u64,
        /// What to store.
        records: Vec<Record>,
    },
    /// Deliver this, or lose it.
    Send(Message),
    /// The proposal has a place in the log.
    Accepted {
        /// The proposal.
        ticket: u64,
        /// Its place.
        at: Position,
    },
    /// The proposal has had no effect and never will.
    Refuse {
        /// The proposal.
        ticket: u64,
        /// Why.
        kind: ErrorKind,
    },
    /// These accepted proposals may or may not take effect; nobody here will know. Their entries may still be committed
    /// by the next leader.
    Abandon {
        /// The proposals, in order of their places.
        tickets: Vec<u64>,
    },
    /// Everything up to here is committed: apply it in order, then answer (if leader, after a look at the lease).
    Commit {
        /// The commit position.
        upto: Seq,
    },
    /// Whether this replica may evaluate operations and answer them.
    Serve(bool),
    /// Tell the coordinator; repeated here until the configuration shows that it was heard.
    Report(Report),
    /// Read entries that are no longer in memory; answer by `LogRead`.
    ReadLog {
        /// Its number.
        read: u64,
        /// For whom it is.
        reader: PlacementId,
        /// First position wanted.
        from: Seq,
        /// Last position wanted.
        upto: Seq,
        /// Stop after about as many bytes.
        bytes_max: usize,
    },
    /// Empty this placement's space, then pull a copy from the leader; answer by `Copied`. Replaces any copy under way.
    StartCopy {
        /// Its number.
        copy: u64,
        /// From whom.
        leader: ReplicaAddress,
        /// The leader's epoch.
        epoch: Epoch,
    },
    /// Stop that copy: no page of it may be written any more.
    StopCopy {
        /// Its number.
        copy: u64,
    },
    /// These reads were confirmed (answer them from what is committed) or not (refuse them, retryably).
    ConfirmDone {
        /// The reads.
        tickets: Vec<u64>,
        /// Whether the leadership stood after they arrived.
        ok: bool,
    },
    /// Log it and raise an alarm.
    Alarm(Alarm),
}
