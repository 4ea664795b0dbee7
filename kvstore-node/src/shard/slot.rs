//! One placement on its shard: its replica and what the shell keeps around it.

use super::OpRequest;
use super::cache::RowCache;
use super::pull::Pull;
use crate::reply::{Outcome, ReplyTo};
use archon_host::{Copy, Emptied, Retention, Waiting};
use archon_kv::LogTime;
use archon_kv::{ClientIndex, Recent, RecentBudget};
use archon_replica::{Position, Recovered, Replica};
use archon_types::{Millis, PartitionId, PlacementId, Seq};
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
    /// The replica may evaluate and answer.
    pub(super) serving: bool,
    /// No duty names it: nothing is answered.
    pub(super) aside: bool,
    pub(super) clients: ClientIndex,
    pub(super) tickets: u64,
    /// Clients that wait.
    pub(super) waiting: Waiting<OpRequest, ReplyTo, Outcome>,
    /// The lease as last told to the replica.
    pub(super) covered: bool,
    /// Since when committed rows gather that the flusher was not given yet.
    pub(super) gathering_since: Option<Millis>,
    /// Bytes logged when they began to.
    pub(super) gathered_from: u64,
    /// Up to here the flusher was given everything.
    pub(super) flushing: Seq,
    /// How much of the log is kept.
    pub(super) retention: Retention<DropGuard>,
    pub(super) pull: Option<Pull>,
    /// It was stepped since its last flush.
    pub(super) touched: bool,
    pub(super) emptied: Emptied,
}

impl Slot {
    pub(super) fn new(placement: PlacementId, found: Found, replica: Replica) -> Self {
        Self {
            partition: found.partition,
            placement,
            retention: Retention::new(found.complete, replica.base().seq),
            replica,
            flushing: found.complete.seq,
            recent: found.recent,
            cache: RowCache::default(),
            log_time: found.log_time,
            serving: false,
            aside: false,
            clients: ClientIndex::default(),
            tickets: 0,
            waiting: Waiting::default(),
            covered: false,
            gathering_since: None,
            gathered_from: 0,
            pull: None,
            touched: false,
            emptied: Emptied::default(),
        }
    }

    /// The window begins anew after `base`: a copy has taken the place of what was there.
    pub(super) fn restart(&mut self, base: Position, budget: RecentBudget) {
        self.recent = Recent::new(base.seq, budget);
        self.recent.set_engine_ahead(ENGINE_AHEAD_UNKNOWN);
        self.cache.clear();
        self.gathering_since = None;
        self.gathered_from = self.retention.logged_bytes();
        self.flushing = base.seq;
        self.retention.restart(base);
    }

    /// Freezes the committed rows that have gathered, for the flusher; what is committed from now on gathers anew.
    pub(super) fn freeze(&mut self) {
        self.gathered_from = self.retention.logged_bytes();
        self.gathering_since = None;
        self.recent.freeze();
    }

    /// What it is to its node.
    pub(super) fn copy(&self) -> Copy<'_> {
        Copy { placement: self.placement, replica: &self.replica, aside: self.aside }
    }

    /// Ends the copies given in a leadership that is over: nobody keeps the log for them any more, and the space may be
    /// emptied next. To be called before anything that a replica wants done is carried out.
    pub(super) fn end_spoilt_copies(&mut self) {
        let gives = self.copy().gives_copies();
        self.retention.end_spoilt(gives);
    }

    /// What a copy brought, perhaps before the node was started, is of unknown positions, but none is above what this
    /// replica held when it came to count.
    pub(super) fn learn_engine_ahead(&mut self) {
        if self.recent.engine_ahead() == ENGINE_AHEAD_UNKNOWN && self.pull.is_none() && self.replica.counts() {
            self.recent.set_engine_ahead(self.replica.last().seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_kv::{Effect, RowChange};
    use archon_replica::{Configuration, Identity, Input, Limits, Run, Timing};
    use archon_types::{
        Epoch, Incarnation, NodeId, Partition, PartitionStatus, Placement, ReplicaState, TableId, Version,
    };
    use bytes::Bytes;
    use std::collections::BTreeMap;

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
}
