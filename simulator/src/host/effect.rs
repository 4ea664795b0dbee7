//! What leaves a machine.

use crate::client::ReplyTo;
use archon_host::{At, Outcome, Refusal, YieldAsk};
use archon_replica::{Entry, Message};
use archon_types::{Millis, PartitionId, PlacementId, Report};

/// What leaves a machine, or is to be judged.
#[derive(Debug)]
pub(super) enum Effect {
    Send(Message),
    /// An answer, and whether it is that of a read.
    Answer {
        at: At,
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
    /// A leader wants rows of the partition that it absorbs.
    AskRight(YieldAsk),
    Opened(PlacementId),
    Serving(At),
    /// These entries are committed.
    Committed(At, Vec<Entry>),
    Deleted(PlacementId),
    /// A copy is taken for damaged, and given up.
    Damaged(At),
    /// Two copies disagree about what is committed, or one cannot take in what it should.
    Alarm(PartitionId, String),
    /// A line of the trace.
    Note(String),
}
