//! One placement on its shard: its replica and what the shell keeps around it.

use super::OpRequest;
use crate::reply::{Outcome, ReplyTo};
use archon_kv::LogTime;
use archon_kv::{ClientIndex, Recent, RecentBudget};
use archon_replica::{Position, Recovered, Replica};
use archon_types::{Epoch, Millis, PartitionId, PlacementId, ReplicaState, Seq};
use std::collections::{BTreeMap, VecDeque};

/// A placement as recovery found it.
pub(crate) struct Found {
    pub(crate) partition: PartitionId,
    pub(crate) recovered: Recovered,
    /// Up to here the engine is complete.
    pub(crate) complete: Position,
    /// The effects after that, in order, and the log time of the last.
    pub(crate) recent: Recent,
    pub(crate) log_time: LogTime,
}

/// Answers that wait for a position to be committed.
pub(super) struct Pending {
    pub(super) seq: Seq,
    /// Log time of the effect there, zero if this answer comes without one.
    pub(super) at: Millis,
    /// The proposal, to find it when the replica abandons it.
    pub(super) ticket: Option<u64>,
    pub(super) reply: Option<ReplyTo>,
    pub(super) outcome: Outcome,
}

/// A copy that this placement pulls.
pub(super) struct Pull {
    pub(super) copy: u64,
    pub(super) leader: archon_replica::ReplicaAddress,
    pub(super) epoch: Epoch,
    /// The space is empty and pages may come.
    pub(super) cleared: bool,
    /// Rows that the flusher had no room for yet.
    pub(super) waiting: Option<super::message::CopyChunk>,
}

/// A placement with a replica.
pub(super) struct Slot {
    pub(super) partition: PartitionId,
    pub(super) placement: PlacementId,
    pub(super) replica: Replica,
    pub(super) recent: Recent,
    /// Log time of the newest effect, committed or not.
    pub(super) log_time: LogTime,
    /// Log time of what is committed, as clients are told it.
    pub(super) applied: Millis,
    /// The replica may evaluate and answer.
    pub(super) serving: bool,
    /// No duty names it: nothing is answered.
    pub(super) aside: bool,
    pub(super) clients: ClientIndex,
    pub(super) tickets: u64,
    /// In order of position.
    pub(super) pending: VecDeque<Pending>,
    /// Committed, but no valid lease covers the answer.
    pub(super) held: Vec<(ReplyTo, Outcome)>,
    /// Reads that wait for a round of confirmations.
    pub(super) confirms: BTreeMap<u64, OpRequest>,
    /// Operations that wait for the leadership to settle.
    pub(super) parked: Vec<OpRequest>,
    /// The lease as last told to the replica.
    pub(super) covered: bool,
    /// Up to here the flusher was given everything.
    pub(super) flushing: Seq,
    /// Up to here the engine is complete on the disk.
    pub(super) complete: Position,
    /// Where the log must be kept from, per loader that copies from here.
    pub(super) pins: BTreeMap<PlacementId, Seq>,
    /// The trim mark last written.
    pub(super) trimmed: Seq,
    /// Bytes ever logged, and how many at some positions: to bound what pins keep.
    pub(super) logged_bytes: u64,
    pub(super) marks: VecDeque<(Seq, u64)>,
    pub(super) pull: Option<Pull>,
}

impl Slot {
    pub(super) fn new(placement: PlacementId, found: Found, replica: Replica) -> Self {
        Self {
            partition: found.partition,
            placement,
            trimmed: replica.base().seq,
            replica,
            flushing: found.complete.seq,
            complete: found.complete,
            recent: found.recent,
            log_time: found.log_time,
            applied: Millis::ZERO,
            serving: false,
            aside: false,
            clients: ClientIndex::default(),
            tickets: 0,
            pending: VecDeque::new(),
            held: Vec::new(),
            confirms: BTreeMap::new(),
            parked: Vec::new(),
            covered: false,
            pins: BTreeMap::new(),
            logged_bytes: 0,
            marks: VecDeque::new(),
            pull: None,
        }
    }

    /// The window begins anew after `base`: a copy has taken the place of what was there.
    pub(super) fn restart(&mut self, base: Position, budget: RecentBudget) {
        self.recent = Recent::new(base.seq, budget);
        self.flushing = base.seq;
        self.complete = base;
        self.trimmed = base.seq;
        self.marks.clear();
        self.pins.clear();
    }

    /// Whether this replica is the only Live one, so that every operation needs the lease.
    pub(super) fn is_alone(&self) -> bool {
        self.replica.configuration().is_none_or(|configuration| configuration.row.live().count() <= 1)
    }

    /// Whether whoever leads counts this copy and need not, for enough others are Live.
    pub(super) fn is_spare(&self) -> bool {
        let Some(configuration) = self.replica.configuration() else { return false };
        let row = &configuration.row;
        let live = row.placement(self.placement).is_some_and(|own| own.state == ReplicaState::Live);
        live && row.live().count() > usize::from(row.min_in_sync)
    }

    /// The last position up to which the log may be forgotten: what the engine has, except what a copy or a follower
    /// still needs. A pin of more than `bytes_max` is given up; its copy begins anew.
    pub(super) fn trim_floor(&mut self, bytes_max: u64) -> Seq {
        let Some(configuration) = self.replica.configuration() else { return self.trimmed };
        let row = &configuration.row;
        let loads = |id: &PlacementId| row.placement(*id).is_some_and(|row| row.state == ReplicaState::Load);
        let mut pins: Vec<(PlacementId, Seq)> =
            self.pins.iter().map(|(id, seq)| (*id, *seq)).filter(|(id, _)| loads(id)).collect();
        for other in row.placements.iter().filter(|other| other.id != self.placement) {
            let Some(held) = self.replica.held_by(other.id) else { continue };
            match pins.iter_mut().find(|(id, _)| *id == other.id) {
                Some((_, seq)) => *seq = held.max(*seq),
                None => pins.push((other.id, held)),
            }
        }
        pins.retain(|(_, seq)| self.bytes_since(*seq) <= bytes_max);
        self.pins.retain(|id, _| pins.iter().any(|(pinned, _)| pinned == id));
        pins.into_iter().map(|(_, seq)| seq).fold(self.complete.seq, Seq::min)
    }

    /// Notes how many bytes were logged by now.
    pub(super) fn mark(&mut self, at: Seq) {
        const MARKS_MAX: usize = 4_096;
        self.marks.push_back((at, self.logged_bytes));
        while self.marks.len() > MARKS_MAX || self.marks.get(1).is_some_and(|(seq, _)| *seq <= self.trimmed) {
            self.marks.pop_front();
        }
    }

    fn bytes_since(&self, seq: Seq) -> u64 {
        let before = self.marks.iter().rev().find(|(at, _)| *at <= seq).or_else(|| self.marks.front());
        self.logged_bytes - before.map_or(self.logged_bytes, |(_, bytes)| *bytes)
    }
}
