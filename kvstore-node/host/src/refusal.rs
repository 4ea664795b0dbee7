//! Why an operation gets no answer, before it is put into the words that its client reads.

use crate::waiting::Ended;
use archon_types::{ErrorDetail, ErrorKind, Seq};

/// Why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The node is stopping.
    Stopping,
    /// The table was dropped.
    Dropped,
    /// The key belongs to another partition.
    Misrouted,
    /// The key is another partition's since this one was split: here nothing was done, nor will be.
    Moved,
    /// Another node leads the partition, as far as is known here, or nobody does.
    Elsewhere,
    /// Nobody leads yet, and the leadership may come here.
    Changing,
    /// No valid lease covers the answer.
    NoLease,
    /// This node has no copy of the partition.
    NoCopy,
    /// The copy here is being brought up to date.
    NotLive,
    /// The copy here does not know yet which of its rows are committed.
    CommitUnknown,
    /// No write is taken now; of this kind is the reason.
    NoWrites(ErrorKind),
    /// The rows could not be read, for this reason.
    Unreadable(String),
    /// It waited in vain.
    Ended(Ended, Cause),
    /// What was found says so itself.
    Detail(ErrorDetail),
}

/// What ended the wait of those who waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The replica abandoned the proposal.
    Abandoned,
    /// The leadership ended while the answer waited for a lease.
    LeaseLost,
    /// The table was dropped.
    Dropped,
    /// No duty names the copy any more.
    SetAside,
    /// The copy is deleted.
    Unloaded,
    /// The copy is damaged.
    Damaged,
    /// This version does not read an entry of the copy's log.
    Unreadable,
    /// The node is stopping.
    Stopping,
}

/// Why a loader gets no copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyRefusal {
    /// The placement that it asks for does not lead that epoch here.
    NotHere,
    /// As far as is known here it is not loading.
    NotLoading,
    /// The log does not reach back to this position.
    LogTooShort(Seq),
}
