//! One copy on its node: its replica and what is kept around it.

use crate::absorb::AbsorbWork;
use crate::copy_view::CopyView;
use crate::emptied::Emptied;
use crate::middle::MiddleSearch;
use crate::mutant::Broken;
use crate::pull::Pull;
use crate::request::Request;
use crate::retention::Retention;
use crate::shell::{At, Shell};
use crate::split::SplitWork;
use crate::split_point::SplitWatch;
use crate::waiting::Waiting;
use archon_kv::{ClientIndex, LogTime, Memtable, MemtableBudget};
use archon_replica::{Position, Recovered, Replica};
use archon_types::{Answer, ErrorDetail, KeyRange, Millis, Partition, PartitionId, PlacementId, Seq};

/// Rows of any position may be in the engine.
pub const ENGINE_AHEAD_UNKNOWN: Seq = Seq::new(u64::MAX);

/// What clients are told of an operation that was carried out.
pub type Outcome = Result<Answer, ErrorDetail>;

/// A copy as recovery found it.
#[derive(Debug)]
pub struct Found {
    /// Whose copy it is.
    pub partition: PartitionId,
    /// What its replica begins with.
    pub recovered: Recovered,
    /// Up to here the engine is complete.
    pub complete: Position,
    /// The effects after that, in order.
    pub memtable: Memtable,
    /// The log time of the last of them.
    pub log_time: LogTime,
    /// The reason this version cannot read an entry after that, if there is one: the copy is kept and not served.
    pub unreadable: Option<String>,
}

/// A copy with a replica.
#[derive(Debug)]
pub struct LocalCopy<S: Shell> {
    /// Whose copy it is.
    pub partition: PartitionId,
    /// Its placement.
    pub placement: PlacementId,
    /// Its replica.
    pub replica: Replica,
    /// Effects that the engine may not have yet.
    pub memtable: Memtable,
    /// What the shell keeps with it.
    pub own: S::Own,
    /// The replica may evaluate and answer.
    pub serving: bool,
    /// No duty names it: nothing is answered.
    pub set_aside: bool,
    /// Its leader sent an entry that this version does not read: nothing more is written to its log.
    pub(crate) stopped: bool,
    /// It was told where its log ends, and takes no message that could move that.
    pub inspected: bool,
    /// Since when committed rows gather that the engine was not given yet.
    pub gathering_since: Option<Millis>,
    /// Since when those had gathered that are on their way to it.
    frozen_since: Option<Millis>,
    /// Bytes logged when they began to.
    pub gathered_from: u64,
    /// Bytes logged when the commit position was noted in the log.
    pub(crate) commit_noted_from: u64,
    /// Up to here the engine was given everything.
    pub flushing: Seq,
    /// How much of the log is kept.
    pub retention: Retention<S::Guard>,
    /// Log time of the newest effect, committed or not.
    pub(crate) log_time: LogTime,
    /// Whom the partition remembers.
    pub(crate) clients: ClientIndex,
    pub(crate) tickets: u64,
    /// Clients that wait.
    pub(crate) waiting: Waiting<Request<S::Reply>, S::Reply, Outcome>,
    /// The lease as last told to the replica.
    pub(crate) covered: bool,
    /// The copy that it pulls.
    pub(crate) pull: Option<Pull<S::Page>>,
    /// It was stepped since its last flush.
    pub(crate) touched: bool,
    pub(crate) emptied: Emptied,
    /// The split of its partition.
    pub(crate) split: SplitWork,
    /// How its partition grows, while it leads and the table has limits.
    pub(crate) watch: Option<SplitWatch>,
    /// Where its middle is, if an operator asked.
    pub(crate) middle: MiddleSearch,
    /// Merges in which its partition gets keys.
    pub(crate) absorb: AbsorbWork,
    /// How soon committed rows are to go to the engine, however few they are.
    pub flush_urgency: FlushUrgency,
}

/// How soon committed rows are to go to the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum FlushUrgency {
    /// When enough have gathered, or for long enough.
    #[default]
    None,
    /// In a moment: somebody is about to wait for them.
    Soon,
    /// Now: somebody waits.
    Now,
}

impl<S: Shell> LocalCopy<S> {
    pub(crate) fn new(
        placement: PlacementId,
        found: Found,
        replica: Replica,
        emptied: Emptied,
        broken: Broken,
    ) -> Self {
        Self {
            partition: found.partition,
            placement,
            retention: Retention::new(found.complete, replica.base().seq),
            replica,
            // A start may have given it more than it is known to have synced.
            flushing: found.memtable.committed(),
            memtable: found.memtable,
            own: S::Own::default(),
            log_time: found.log_time,
            serving: false,
            set_aside: false,
            stopped: false,
            inspected: false,
            clients: ClientIndex::default(),
            tickets: 0,
            waiting: Waiting::new(broken),
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

    /// The memtable begins anew after `base`: a copy has taken the place of what was there.
    pub(crate) fn restart(&mut self, base: Position, budget: MemtableBudget) {
        self.begin_memtable(base.seq, budget);
        self.gathered_from = self.retention.logged_bytes();
        self.retention.restart(base);
    }

    /// Rows of a copy are to come in place of what was there.
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

    /// Freezes the committed rows that have gathered, for the engine; what is committed from now on gathers anew.
    pub fn freeze(&mut self) {
        self.gathered_from = self.retention.logged_bytes();
        self.frozen_since = self.gathering_since.take();
        self.memtable.freeze();
    }

    /// When the oldest row was committed that the engine has not written yet, if it lacks one.
    pub(crate) fn unwritten_since(&self) -> Option<Millis> {
        if self.memtable.frozen().is_some() { self.frozen_since } else { self.gathering_since }
    }

    /// What it is to its node.
    pub fn view(&self) -> CopyView<'_> {
        CopyView { placement: self.placement, replica: &self.replica, set_aside: self.set_aside }
    }

    /// Its partition's row, once it knows it.
    pub(crate) fn row(&self) -> Option<&Partition> {
        self.replica.configuration().map(|configuration| &configuration.row)
    }

    /// The keys that its row gives it; `None` before it knows its row, when it serves nothing.
    pub(crate) fn range(&self) -> Option<&KeyRange> {
        self.row().map(|row| &row.range)
    }

    /// Whether its row gives this key to another partition.
    pub(crate) fn is_beyond(&self, key: &[u8]) -> bool {
        self.range().is_some_and(|range| !range.contains(key))
    }

    /// Whether its partition is to have keys of its right neighbour that it has not yet.
    pub(crate) fn is_absorbing(&self) -> bool {
        self.row().is_some_and(|row| row.absorbs().is_some())
    }

    /// Whether its log has all the keys that it is to have and its row does not give it yet.
    pub(crate) fn has_all_it_absorbs(&self) -> bool {
        let attempt = self.row().and_then(|row| Some(row.absorbs()?.0.attempt));
        attempt.is_some() && attempt == self.absorb.merged().map(|merged| merged.attempt)
    }

    /// Whether its partition is to give all of its keys to its left neighbour, and its log does.
    pub(crate) fn is_yielding(&self) -> bool {
        let attempt = self.row().and_then(|row| Some(row.yields()?.0.attempt));
        attempt.is_some_and(|attempt| self.split.seals_for(attempt))
    }

    /// Whether it pulls a copy.
    pub const fn is_pulling(&self) -> bool {
        self.pull.is_some()
    }

    /// Where it stands.
    pub fn at(&self) -> At {
        let (epoch, commit) = (self.replica.epoch(), self.replica.commit());
        At { partition: self.partition, placement: self.placement, epoch, commit }
    }

    /// Ends the copies given in a leadership that is over: nobody keeps the log for them any more, and the space may be
    /// emptied next. To be called before anything that a replica wants done is carried out.
    pub(crate) fn end_spoilt_copies(&mut self) {
        let gives = self.view().gives_copies();
        self.retention.end_spoilt(gives);
    }

    /// What a copy brought, perhaps before the node was started, is of unknown positions, but none is above what this
    /// replica held when it came to count.
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
