//! One copy on its node: its replica and the state around it.

use crate::copies::copy_view::CopyView;
use crate::copies::pull::Pull;
use crate::copies::reset_report::ResetReport;
use crate::copies::retention::Retention;
use crate::mutant::DisabledRule;
use crate::operations::request::{Outcome, Request};
use crate::operations::waiting_clients::WaitingClients;
use crate::ranges::absorb_work::AbsorbWork;
use crate::ranges::middle_search::MiddleSearch;
use crate::ranges::split_watch::SplitWatch;
use crate::ranges::split_work::SplitWork;
use crate::shell::{CopyLocation, Shell};
use archon_kv::{ClientIndex, ExpiryIndex, LogTime, Memtable, MemtableBudget};
use archon_replica::{Position, RecoveredState, Replica};
use archon_types::{KeyRange, Millis, Partition, PartitionId, PlacementId, Seq};

/// Marks that the engine may hold rows of any position.
pub const ENGINE_AHEAD_UNKNOWN: Seq = Seq::new(u64::MAX);

/// A copy as recovery found it.
#[derive(Debug)]
pub struct RecoveredCopy {
    /// The partition it is a copy of.
    pub partition: PartitionId,
    /// Recovered state of its replica.
    pub recovered: RecoveredState,
    /// Position up to which the engine is complete.
    pub complete: Position,
    /// The effects after that, in order.
    pub memtable: Memtable,
    /// Log time of the last effect.
    pub log_time: LogTime,
    /// Reason why this version cannot read a later entry, if so: the copy is kept and not served.
    pub unreadable: Option<String>,
}

/// A copy with a replica.
#[derive(Debug)]
pub struct LocalCopy<S: Shell> {
    /// The partition it is a copy of.
    pub partition: PartitionId,
    /// Its placement.
    pub placement: PlacementId,
    /// Its replica.
    pub replica: Replica,
    /// Effects that the engine may not have yet.
    pub memtable: Memtable,
    /// State that the shell keeps with it.
    pub own: S::Own,
    /// The replica may evaluate and answer.
    pub serving: bool,
    /// No duty names it, and it serves nothing.
    pub set_aside: bool,
    /// Its leader sent an entry that this version cannot read: nothing more is written to its log.
    pub(crate) stopped: bool,
    /// The end of its log was reported: it accepts no message that could move it.
    pub inspected: bool,
    /// Commit time of the oldest row not yet passed to the engine.
    pub gathering_since: Option<Millis>,
    /// The same for the frozen rows on their way to the engine.
    frozen_since: Option<Millis>,
    /// Bytes logged when gathering began.
    pub gathered_from: u64,
    /// Bytes logged when the commit position was last noted in the log.
    pub(crate) commit_noted_from: u64,
    /// Position up to which the engine received everything.
    pub flushing: Seq,
    /// Retention of its log.
    pub retention: Retention<S::Guard>,
    /// Log time of the newest effect, committed or not.
    pub(crate) log_time: LogTime,
    /// Client records of the partition.
    pub(crate) clients: ClientIndex,
    /// Values that expire soon, while it leads.
    pub(crate) expiry: ExpiryIndex,
    pub(crate) tickets: u64,
    /// Waiting clients.
    pub(crate) waiting: WaitingClients<Request<S::Reply>, S::Reply, Outcome>,
    /// Lease state last passed to the replica.
    pub(crate) covered: bool,
    /// The copy being pulled.
    pub(crate) pull: Option<Pull<S::Page>>,
    /// Stepped since its last flush.
    pub(crate) touched: bool,
    pub(crate) emptied: ResetReport,
    /// Split of its partition.
    pub(crate) split: SplitWork,
    /// Growth of the partition, while it leads and the table has limits.
    pub(crate) watch: Option<SplitWatch>,
    /// Split key for an operator.
    pub(crate) middle: MiddleSearch,
    /// Merges into its partition.
    pub(crate) absorb: AbsorbWork,
    /// Urgency of the next flush, regardless of the amount of rows.
    pub flush_urgency: FlushUrgency,
}

/// Urgency of giving committed rows to the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum FlushUrgency {
    /// At the usual thresholds of size and age.
    #[default]
    None,
    /// Shortly: an operation is about to wait for them.
    Soon,
    /// Now: an operation waits.
    Now,
}

impl<S: Shell> LocalCopy<S> {
    pub(crate) fn new(
        placement: PlacementId,
        found: RecoveredCopy,
        replica: Replica,
        emptied: ResetReport,
        broken: DisabledRule,
    ) -> Self {
        Self {
            partition: found.partition,
            placement,
            retention: Retention::new(found.complete, replica.base().seq),
            replica,
            // A start may have given the engine more than is known to be synced.
            flushing: found.memtable.committed(),
            memtable: found.memtable,
            own: S::Own::default(),
            log_time: found.log_time,
            serving: false,
            set_aside: false,
            stopped: false,
            inspected: false,
            clients: ClientIndex::default(),
            expiry: ExpiryIndex::default(),
            tickets: 0,
            waiting: WaitingClients::new(broken),
            covered: false,
            gathering_since: None,
            frozen_since: None,
            gathered_from: 0,
            commit_noted_from: 0,
            pull: None,
            touched: false,
            emptied,
            split: SplitWork::default(),
            watch: None,
            middle: MiddleSearch::None,
            absorb: AbsorbWork::default(),
            flush_urgency: FlushUrgency::None,
        }
    }

    /// Restarts the memtable after `base`: a pulled copy has replaced the previous data.
    pub(crate) fn restart(&mut self, base: Position, budget: MemtableBudget) {
        self.begin_memtable(base.seq, budget);
        self.gathered_from = self.retention.logged_bytes();
        self.retention.restart(base);
    }

    /// Prepares for the rows of a copy that replaces the previous data.
    pub(crate) fn begin_pull(&mut self, budget: MemtableBudget) {
        self.begin_memtable(Seq::ZERO, budget);
        self.retention.empty();
        self.emptied.is_pulled();
    }

    fn begin_memtable(&mut self, after: Seq, budget: MemtableBudget) {
        self.memtable = Memtable::new(after, budget);
        self.memtable.set_engine_ahead(ENGINE_AHEAD_UNKNOWN);
        self.gathering_since = None;
        self.flushing = after;
    }

    /// Freezes the gathered committed rows for the engine; later commits gather separately.
    pub fn freeze(&mut self) {
        self.gathered_from = self.retention.logged_bytes();
        self.frozen_since = self.gathering_since.take();
        self.memtable.freeze();
    }

    /// Returns the commit time of the oldest row that the engine has not written yet.
    pub(crate) fn unwritten_since(&self) -> Option<Millis> {
        if self.memtable.frozen().is_some() { self.frozen_since } else { self.gathering_since }
    }

    /// Returns a read-only view.
    pub fn view(&self) -> CopyView<'_> {
        CopyView { placement: self.placement, replica: &self.replica, set_aside: self.set_aside }
    }

    /// Returns its partition's row, once known.
    pub(crate) fn row(&self) -> Option<&Partition> {
        self.replica.configuration().map(|configuration| &configuration.row)
    }

    /// Returns the keys that its row gives it; `None` before it knows its row, when it serves nothing.
    pub(crate) fn range(&self) -> Option<&KeyRange> {
        self.row().map(|row| &row.range)
    }

    /// Returns whether its row gives this key to another partition.
    pub(crate) fn is_beyond(&self, key: &[u8]) -> bool {
        self.range().is_some_and(|range| !range.contains(key))
    }

    /// Returns whether its row has it merging in keys of its right neighbour.
    pub(crate) fn is_absorbing(&self) -> bool {
        self.row().is_some_and(|row| row.absorbs().is_some())
    }

    /// Returns whether its log has all merged-in keys, although its row does not give them yet.
    pub(crate) fn has_all_it_absorbs(&self) -> bool {
        let attempt = self.row().and_then(|row| Some(row.absorbs()?.0.attempt));
        attempt.is_some() && attempt == self.absorb.merged().map(|merged| merged.attempt)
    }

    /// Returns whether its partition gives all keys to its left neighbour, and its log has sealed them.
    pub(crate) fn is_yielding(&self) -> bool {
        let attempt = self.row().and_then(|row| Some(row.yields()?.0.attempt));
        attempt.is_some_and(|attempt| self.split.seals_for(attempt))
    }

    /// Returns whether it pulls a copy.
    pub const fn is_pulling(&self) -> bool {
        self.pull.is_some()
    }

    /// Returns its location and progress, for events.
    pub fn at(&self) -> CopyLocation {
        let (epoch, commit) = (self.replica.epoch(), self.replica.commit());
        CopyLocation { partition: self.partition, placement: self.placement, epoch, commit }
    }

    /// Ends the copies served in a past leadership: the log is not kept for them, and the space may be emptied next.
    /// Call this before carrying out any output of the replica.
    pub(crate) fn end_spoilt_copies(&mut self) {
        let gives = self.view().gives_copies();
        self.retention.end_spoilt(gives);
    }

    /// Limits the unknown positions of pulled rows, perhaps pulled before the node started: none exceeds the end of the
    /// log at the moment this replica became in sync.
    pub fn learn_engine_ahead(&mut self) {
        if self.memtable.engine_ahead() == ENGINE_AHEAD_UNKNOWN && self.pull.is_none() && self.replica.counts() {
            self.memtable.set_engine_ahead(self.replica.last().seq);
        }
    }

    pub(crate) const fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

#[cfg(test)]
#[path = "local_copy_tests.rs"]
mod tests;
