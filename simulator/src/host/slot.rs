//! One placement in a process: its replica, and what the shell keeps around it.

use crate::client::ReplyTo;
use archon_host::{Copy, Emptied, Retention, Waiting};
use archon_kv::{ClientIndex, LogTime, Recent, RecentBudget};
use archon_replica::{Entry, Position, Replica, ReplicaAddress};
use archon_types::{Answer, Epoch, ErrorKind, Millis, Op, OpId, PartitionId, PlacementId, Seq, Version};
use bytes::Bytes;
use std::collections::VecDeque;

/// Any position may be in the engine.
pub(super) const UNKNOWN: Seq = Seq::new(u64::MAX);

/// What a client is told.
pub(crate) type Outcome = Result<Answer, ErrorKind>;

/// An operation as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) partition: PartitionId,
    pub(crate) op: Op,
    pub(crate) id: Option<OpId>,
    pub(crate) reply: ReplyTo,
}

/// A copy being pulled.
#[derive(Clone, Debug)]
pub(crate) struct Pull {
    pub(crate) copy: u64,
    pub(crate) leader: ReplicaAddress,
    pub(crate) epoch: Epoch,
    pub(crate) cleared: bool,
    pub(crate) start: Option<Position>,
    /// Of the row under which the last page was given.
    pub(crate) version: Version,
    pub(crate) after: Bytes,
    /// Counts requests for pages: only the answer to the newest is taken, as on a stream.
    pub(crate) asks: u64,
    /// When the next page was asked for, on the local clock.
    pub(crate) asked: Option<Millis>,
    /// All pages are in; they wait for the engine's sync.
    pub(crate) whole: bool,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) partition: PartitionId,
    pub(crate) placement: PlacementId,
    pub(crate) replica: Replica,
    pub(crate) recent: Recent,
    /// The entries after what the engine is complete to, as handed to the disk.
    pub(crate) log: VecDeque<Entry>,
    pub(crate) log_time: LogTime,
    pub(crate) serving: bool,
    pub(crate) aside: bool,
    pub(crate) clients: ClientIndex,
    pub(crate) tickets: u64,
    pub(crate) waiting: Waiting<Request, ReplyTo, Outcome>,
    pub(crate) covered: bool,
    /// Up to here the engine was written.
    pub(crate) written: Seq,
    pub(crate) retention: Retention<()>,
    pub(crate) pull: Option<Pull>,
    pub(crate) emptied: Emptied,
}

impl Slot {
    pub(crate) fn new(partition: PartitionId, placement: PlacementId, replica: Replica, complete: Position) -> Self {
        Self {
            partition,
            placement,
            retention: Retention::new(complete, replica.base().seq),
            replica,
            recent: Recent::new(complete.seq, RecentBudget::default()),
            log: VecDeque::new(),
            log_time: LogTime::default(),
            serving: false,
            aside: false,
            clients: ClientIndex::default(),
            tickets: 0,
            waiting: Waiting::default(),
            covered: false,
            written: complete.seq,
            pull: None,
            emptied: Emptied::default(),
        }
    }

    /// What it is to its node.
    pub(crate) fn copy(&self) -> Copy<'_> {
        Copy { placement: self.placement, replica: &self.replica, aside: self.aside }
    }

    /// Ends the copies given in a leadership that is over.
    pub(crate) fn end_spoilt_copies(&mut self) {
        let gives = self.copy().gives_copies();
        self.retention.end_spoilt(gives);
    }

    /// The window begins anew after `base`.
    pub(crate) fn restart(&mut self, base: Position) {
        self.recent = Recent::new(base.seq, RecentBudget::default());
        self.recent.set_engine_ahead(UNKNOWN);
        self.log.clear();
        self.written = base.seq;
        self.retention.restart(base);
    }

    pub(crate) fn entry(&self, seq: Seq) -> Option<&Entry> {
        let first = self.log.front()?.at.seq.get();
        usize::try_from(seq.get().checked_sub(first)?).ok().and_then(|number| self.log.get(number))
    }

    pub(crate) fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}
