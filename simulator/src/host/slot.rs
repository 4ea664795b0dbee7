//! One placement in a process: its replica, and what the shell keeps around it.

use crate::client::ReplyTo;
use archon_kv::{ClientIndex, LogTime, Recent, RecentBudget};
use archon_replica::{Entry, Position, Replica, ReplicaAddress};
use archon_types::{
    Answer, Epoch, ErrorKind, Incarnation, Millis, Op, OpId, PartitionId, PlacementId, ReplicaState, Seq, Version,
};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

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

/// An answer that waits for a position to be committed.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) seq: Seq,
    pub(crate) at: Millis,
    pub(crate) ticket: Option<u64>,
    pub(crate) reply: Option<ReplyTo>,
    pub(crate) outcome: Outcome,
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
    pub(crate) applied: Millis,
    pub(crate) serving: bool,
    pub(crate) aside: bool,
    pub(crate) clients: ClientIndex,
    pub(crate) tickets: u64,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) held: Vec<(ReplyTo, Outcome)>,
    pub(crate) confirms: BTreeMap<u64, Request>,
    pub(crate) covered: bool,
    /// Up to here the engine was written.
    pub(crate) written: Seq,
    /// Up to here the engine is complete on the disk.
    pub(crate) complete: Position,
    pub(crate) trimmed: Seq,
    pub(crate) pins: BTreeMap<PlacementId, Seq>,
    pub(crate) pull: Option<Pull>,
    /// In which life it was last said that nothing is held any more, of the row at which version if any.
    pub(crate) emptied_told: Option<(Incarnation, Option<Version>)>,
}

impl Slot {
    pub(crate) fn new(partition: PartitionId, placement: PlacementId, replica: Replica, complete: Position) -> Self {
        Self {
            partition,
            placement,
            trimmed: replica.base().seq,
            replica,
            recent: Recent::new(complete.seq, RecentBudget::default()),
            log: VecDeque::new(),
            log_time: LogTime::default(),
            applied: Millis::ZERO,
            serving: false,
            aside: false,
            clients: ClientIndex::default(),
            tickets: 0,
            pending: VecDeque::new(),
            held: Vec::new(),
            confirms: BTreeMap::new(),
            covered: false,
            written: complete.seq,
            complete,
            pins: BTreeMap::new(),
            pull: None,
            emptied_told: None,
        }
    }

    /// Whether this copy does not count and holds nothing at all.
    pub(crate) fn is_emptied(&self) -> bool {
        let row = self.replica.configuration().map(|known| &known.row);
        let state = row.and_then(|row| row.placement(self.placement)).map(|own| own.state);
        state == Some(ReplicaState::Load) && self.replica.last() == Position::ZERO
    }

    /// The window begins anew after `base`.
    pub(crate) fn restart(&mut self, base: Position) {
        self.recent = Recent::new(base.seq, RecentBudget::default());
        self.recent.set_engine_ahead(UNKNOWN);
        self.log.clear();
        self.written = base.seq;
        self.complete = base;
        self.trimmed = base.seq;
        self.pins.clear();
    }

    /// Whether this replica is the only Live one, so that every operation needs the lease.
    pub(crate) fn is_alone(&self) -> bool {
        self.replica.configuration().is_none_or(|known| known.row.live().count() <= 1)
    }

    pub(crate) fn entry(&self, seq: Seq) -> Option<&Entry> {
        let first = self.log.front()?.at.seq.get();
        usize::try_from(seq.get().checked_sub(first)?).ok().and_then(|number| self.log.get(number))
    }

    pub(crate) fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// The last position up to which the log may be forgotten: what the engine has, except what a copy or a follower
    /// still needs. Loaders that lag are not waited for, so that copies happen.
    pub(crate) fn trim_floor(&self) -> Seq {
        let Some(known) = self.replica.configuration() else { return self.trimmed };
        let loads = |id: &PlacementId| known.row.placement(*id).is_some_and(|row| row.state == ReplicaState::Load);
        let pins = self.pins.iter().filter(|(id, _)| loads(id)).map(|(_, seq)| *seq);
        let live = known.row.live().filter(|live| live.id != self.placement);
        let held = live.filter_map(|live| self.replica.held_by(live.id));
        pins.chain(held).fold(self.complete.seq, Seq::min)
    }
}
