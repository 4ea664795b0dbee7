//! One placement on its shard: its replica and what the shell keeps around it.

use super::OpRequest;
use super::cache::RowCache;
use super::pull::Pull;
use crate::reply::{Outcome, ReplyTo};
use archon_kv::LogTime;
use archon_kv::{ClientIndex, Recent, RecentBudget};
use archon_replica::{Position, Recovered, Replica, Standing};
use archon_types::{Epoch, Incarnation, Millis, PartitionId, PlacementId, ReplicaState, Seq, Version};
use std::collections::{BTreeMap, VecDeque};
use tokio_util::sync::DropGuard;

/// Rows of any position may be in the engine.
pub(crate) const ENGINE_AHEAD_UNKNOWN: Seq = Seq::new(u64::MAX);

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

/// When the coordinator was told something about a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// The registration of the node in which it was.
    pub(super) incarnation: Incarnation,
    /// The row's version that it was said under; `None` if it need not be said again, however the row changes.
    pub(super) version: Option<Version>,
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

/// A copy that this leader gives: the log is kept for it, and its pages may be read, as long as this stands.
pub(super) struct Pin {
    /// The log is kept from the entry after this one on.
    pub(super) seq: Seq,
    /// The leadership that gives it.
    pub(super) epoch: Epoch,
    /// Ends the reading of pages, when this is dropped.
    pub(super) _reading: DropGuard,
}

/// A placement with a replica.
pub(super) struct Slot {
    pub(super) partition: PartitionId,
    pub(super) placement: PlacementId,
    pub(super) replica: Replica,
    pub(super) recent: Recent,
    /// What reads found in the engine.
    pub(super) cache: RowCache,
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
    /// Since when committed rows gather that the flusher was not given yet.
    pub(super) gathering_since: Option<Millis>,
    /// Bytes logged when they began to.
    pub(super) gathered_from: u64,
    /// Up to here the flusher was given everything.
    pub(super) flushing: Seq,
    /// Up to here the engine is complete on the disk.
    pub(super) complete: Position,
    /// The copies given, per loader.
    pub(super) pins: BTreeMap<PlacementId, Pin>,
    /// Up to where other copies were last known to hold the log: one that is away for a moment should not have to be
    /// copied whole when it comes back.
    pub(super) lagging: BTreeMap<PlacementId, Seq>,
    /// The trim mark last written.
    pub(super) trimmed: Seq,
    /// Bytes ever logged, and how many at some positions: to bound what pins keep.
    pub(super) logged_bytes: u64,
    pub(super) marks: VecDeque<(Seq, u64)>,
    pub(super) pull: Option<Pull>,
    /// It was stepped since its last flush.
    pub(super) touched: bool,
    /// When it was last said that the copy was emptied.
    pub(super) emptied_told: Option<Told>,
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
            cache: RowCache::default(),
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
            gathering_since: None,
            gathered_from: 0,
            pins: BTreeMap::new(),
            lagging: BTreeMap::new(),
            logged_bytes: 0,
            marks: VecDeque::new(),
            pull: None,
            touched: false,
            emptied_told: None,
        }
    }

    /// The window begins anew after `base`: a copy has taken the place of what was there.
    pub(super) fn restart(&mut self, base: Position, budget: RecentBudget) {
        self.recent = Recent::new(base.seq, budget);
        self.recent.set_engine_ahead(ENGINE_AHEAD_UNKNOWN);
        self.cache.clear();
        self.gathering_since = None;
        self.gathered_from = self.logged_bytes;
        self.flushing = base.seq;
        self.complete = base;
        self.trimmed = base.seq;
        self.marks.clear();
        self.pins.clear();
        self.lagging.clear();
    }

    /// Freezes the committed rows that have gathered, for the flusher; what is committed from now on gathers anew.
    pub(super) fn freeze(&mut self) {
        self.gathered_from = self.logged_bytes;
        self.gathering_since = None;
        self.recent.freeze();
    }

    /// Whether it leads, so that copies may be pulled from here.
    pub(super) fn gives_copies(&self) -> bool {
        !self.aside
            && matches!(self.replica.standing(), Standing::TakingOver | Standing::Serving | Standing::HandingOver)
    }

    /// Ends the copies given in a leadership that is over: nobody keeps the log for them any more, and the space may be
    /// emptied next. To be called before anything that a replica wants done is carried out.
    pub(super) fn end_spoilt_copies(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        if self.gives_copies() {
            let epoch = self.replica.epoch();
            self.pins.retain(|_, pin| pin.epoch == epoch);
        } else {
            self.pins.clear();
        }
    }

    /// What a copy brought, perhaps before the node was started, is of unknown positions, but none is above what this
    /// replica held when it came to count.
    pub(super) fn learn_engine_ahead(&mut self) {
        if self.recent.engine_ahead() == ENGINE_AHEAD_UNKNOWN && self.pull.is_none() && self.replica.counts() {
            self.recent.set_engine_ahead(self.replica.last().seq);
        }
    }

    /// Whether this copy does not count and holds nothing at all.
    pub(super) fn is_emptied(&self) -> bool {
        self.state() == Some(ReplicaState::Load) && self.replica.last() == Position::ZERO
    }

    fn state(&self) -> Option<ReplicaState> {
        let row = self.replica.configuration().map(|configuration| &configuration.row);
        row.and_then(|row| row.placement(self.placement)).map(|own| own.state)
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
    /// still needs. A pin of more than `bytes_max` is given up; its copy begins anew. For one that is away, nothing is
    /// known of or does not count, at most `lagging_bytes_max` are kept, here and at whoever may lead next.
    pub(super) fn trim_floor(&mut self, bytes_max: u64, lagging_bytes_max: u64) -> Seq {
        let Some(configuration) = self.replica.configuration() else { return self.trimmed };
        let row = &configuration.row;
        let loads = |id: &PlacementId| row.placement(*id).is_some_and(|row| row.state == ReplicaState::Load);
        let mut pins: Vec<(PlacementId, Seq)> =
            self.pins.iter().map(|(id, pin)| (*id, pin.seq)).filter(|(id, _)| loads(id)).collect();
        let leads = row.leader == Some(self.placement);
        self.lagging.retain(|id, _| row.placement(*id).is_some_and(|other| other.state != ReplicaState::Unload));
        let mut kept = self.complete.seq;
        for other in row.placements.iter().filter(|other| other.id != self.placement) {
            let Some(held) = self.replica.held_by(other.id) else {
                // A follower keeps nothing for those that count: they hold everything.
                if other.state == ReplicaState::Load || (leads && other.state == ReplicaState::Live) {
                    let held = *self.lagging.entry(other.id).or_insert(self.trimmed);
                    if held >= self.trimmed && bytes_since(&self.marks, self.logged_bytes, held) <= lagging_bytes_max {
                        kept = kept.min(held);
                    }
                } else {
                    self.lagging.remove(&other.id);
                }
                continue;
            };
            self.lagging.insert(other.id, held);
            match pins.iter_mut().find(|(id, _)| *id == other.id) {
                Some((_, seq)) => *seq = held.max(*seq),
                None => pins.push((other.id, held)),
            }
        }
        pins.retain(|(_, seq)| bytes_since(&self.marks, self.logged_bytes, *seq) <= bytes_max);
        self.pins.retain(|id, _| pins.iter().any(|(pinned, _)| pinned == id));
        pins.into_iter().map(|(_, seq)| seq).fold(kept, Seq::min)
    }

    /// Notes how many bytes were logged by now.
    pub(super) fn mark(&mut self, at: Seq) {
        const MARKS_MAX: usize = 4_096;
        self.marks.push_back((at, self.logged_bytes));
        while self.marks.len() > MARKS_MAX || self.marks.get(1).is_some_and(|(seq, _)| *seq <= self.trimmed) {
            self.marks.pop_front();
        }
    }
}

/// Bytes logged since `seq`, by the marks.
fn bytes_since(marks: &VecDeque<(Seq, u64)>, logged_bytes: u64, seq: Seq) -> u64 {
    let before = marks.iter().rev().find(|(at, _)| *at <= seq).or_else(|| marks.front());
    logged_bytes - before.map_or(logged_bytes, |(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_kv::{Effect, RowChange};
    use archon_replica::{Configuration, Identity, Input, Limits, Run, Timing};
    use archon_types::{Epoch, Incarnation, NodeId, Partition, PartitionStatus, Placement, TableId, Version};
    use bytes::Bytes;

    const OWN: PlacementId = PlacementId::new(1);

    fn row(version: u64, other: ReplicaState) -> Partition {
        let placement = |id: u64, state| Placement { id: PlacementId::new(id), node: NodeId::new(id), state };
        Partition {
            id: PartitionId::new(TableId::new(1), 0),
            epoch: Epoch::new(1),
            version: Version::new(version),
            status: PartitionStatus::Online,
            leader: Some(PlacementId::new(3)),
            placements: vec![placement(1, ReplicaState::Live), placement(2, other), placement(3, ReplicaState::Live)],
            min_in_sync: 2,
        }
    }

    fn configure(slot: &mut Slot, row: Partition) {
        let configuration = Configuration { row, peers: BTreeMap::new(), timing: Timing::default() };
        slot.replica.step(Millis::new(1), Input::Configure(configuration), &mut Vec::new());
    }

    /// A placement whose log and engine hold ten entries.
    fn slot() -> Slot {
        let partition = PartitionId::new(TableId::new(1), 0);
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(1));
        let identity = Identity { partition, placement: OWN, node, incarnation };
        let recovered = Recovered {
            epoch: Epoch::new(1),
            base: Position::ZERO,
            runs: vec![Run { epoch: Epoch::new(1), first: Seq::new(1) }],
            last: Seq::new(10),
            commit: Seq::new(10),
        };
        let replica = Replica::new(identity, recovered.clone(), Limits::default()).unwrap();
        let complete = Position::new(Epoch::new(1), Seq::new(10));
        let recent = Recent::new(Seq::new(10), RecentBudget::default());
        let found = Found { partition, recovered, complete, recent, log_time: LogTime::default() };
        Slot::new(OWN, found, replica)
    }

    fn write(slot: &mut Slot, seq: u64) {
        let changes = vec![RowChange::set(Bytes::from(seq.to_string()), Bytes::new())];
        slot.recent.push(Seq::new(seq), Effect { at: Millis::new(seq), changes }).unwrap();
        slot.recent.commit(Seq::new(seq));
    }

    #[test]
    fn the_first_commit_after_a_pause_gathers_anew() {
        let mut slot = slot();
        write(&mut slot, 11);
        slot.gathering_since = Some(Millis::new(1));
        slot.freeze();
        assert!(!slot.recent.is_empty());
        assert_eq!(slot.gathering_since, None, "nothing gathers");
    }

    #[test]
    fn a_restarted_copy_does_not_know_what_the_engine_holds_until_it_counts() {
        let mut slot = slot();
        slot.recent.set_engine_ahead(ENGINE_AHEAD_UNKNOWN);
        slot.learn_engine_ahead();
        let mut loading = row(1, ReplicaState::Live);
        loading.placements[0].state = ReplicaState::Load;
        configure(&mut slot, loading);
        slot.learn_engine_ahead();
        assert_eq!(slot.recent.engine_ahead(), ENGINE_AHEAD_UNKNOWN);
        configure(&mut slot, row(2, ReplicaState::Live));
        slot.learn_engine_ahead();
        assert_eq!(slot.recent.engine_ahead(), Seq::new(10));
    }

    #[test]
    fn the_log_is_kept_for_a_copy_that_is_away_but_not_for_ever() {
        let mut slot = slot();
        slot.marks.push_back((Seq::ZERO, 0));
        slot.logged_bytes = 100;
        configure(&mut slot, row(1, ReplicaState::Live));
        assert_eq!(slot.trim_floor(1_000, 1_000), Seq::new(10), "whoever counts holds everything");
        configure(&mut slot, row(2, ReplicaState::Load));
        assert_eq!(slot.trim_floor(1_000, 1_000), Seq::ZERO, "it is away");
        assert_eq!(slot.trim_floor(1_000, 99), Seq::new(10), "it has been away for too long");
        configure(&mut slot, row(3, ReplicaState::Live));
        assert_eq!(slot.trim_floor(1_000, 1_000), Seq::new(10), "it is back");
    }
}
