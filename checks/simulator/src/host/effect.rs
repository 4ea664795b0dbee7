//! Effects of a machine.

use crate::client::calls::ReplyTo;
use archon_host::{CopyLocation, Outcome, Refusal, YieldAsk};
use archon_replica::{Entry, Message};
use archon_types::{Millis, PartitionId, PlacementId, Report};

/// An effect that leaves a machine, or is to be checked.
#[derive(Debug)]
pub(super) enum Effect {
    Send(Message),
    /// An answer, and whether it is that of a read.
    Answer {
        at: CopyLocation,
        to: ReplyTo,
        log_time: Millis,
        outcome: Outcome,
        read: bool,
    },
    Refuse {
        partition: PartitionId,
        to: ReplyTo,
        log_time: Millis,
        refusal: Refusal,
    },
    Report(Report),
    /// A leader requests rows of its merge source.
    AskRight(YieldAsk),
    Opened(PlacementId),
    Serving(CopyLocation),
    /// These entries are committed.
    Committed(CopyLocation, Vec<Entry>),
    Deleted(PlacementId),
    /// A copy was found damaged, and given up.
    Damaged(CopyLocation),
    /// Two copies disagree about committed entries, or one cannot accept an entry that it should.
    Alarm(PartitionId, String),
    /// A line of the trace.
    Note(String),
}
