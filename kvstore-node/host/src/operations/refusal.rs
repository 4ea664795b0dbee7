//! Reasons why an operation gets no answer, before they are put into words for the client.

use crate::operations::waiting_clients::UnansweredOutcome;
use archon_types::{ErrorDetail, ErrorKind, Seq};

/// Reason for refusing an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The node is stopping.
    Stopping,
    /// The table was dropped.
    Dropped,
    /// The key belongs to another partition.
    Misrouted,
    /// The key moved to another partition in a split: nothing was or will be done here.
    Moved,
    /// Another node leads the partition, as far as is known here, or there is no leader.
    Elsewhere,
    /// There is no leader yet, and the leadership may come here.
    Changing,
    /// No valid lease covers the answer.
    NoLease,
    /// This node has no copy of the partition.
    NoCopy,
    /// The copy here is catching up.
    NotLive,
    /// The copy here does not know yet which of its rows are committed.
    CommitUnknown,
    /// The copy here may lack recent writes: the node has no lease, or the copy has not heard from its leader.
    Behind,
    /// No write is accepted now, for a reason of this kind.
    NoWrites(ErrorKind),
    /// The rows could not be read, for this reason.
    Unreadable(String),
    /// The engine refuses to read the rows of the copy that the node leads.
    Unread,
    /// Its wait ended without an answer.
    Ended(UnansweredOutcome, Cause),
    /// The detail describes it.
    Detail(ErrorDetail),
}

/// Reason why waiting operations ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The replica abandoned the proposal.
    Abandoned,
    /// The leadership ended while the answer waited for a lease.
    LeaseLost,
    /// The table was dropped.
    Dropped,
    /// No duty names the copy any longer.
    SetAside,
    /// The copy is deleted.
    Unloaded,
    /// The copy is damaged.
    Damaged,
    /// This version cannot read an entry of the copy's log.
    Unreadable,
    /// The engine refuses to read the copy's rows.
    Unread,
    /// The node is stopping.
    Stopping,
}

/// Reason why a loader gets no copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyRefusal {
    /// The requested placement does not lead that epoch here.
    NotHere,
    /// As far as is known here, the loader is not loading.
    NotLoading,
    /// The log does not reach back to this position.
    LogTooShort(Seq),
}
