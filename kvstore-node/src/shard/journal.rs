//! Journal of a shard: its writes to the write-ahead log, one batch per turn, with completions in order and ordered
//! retries.

use crate::storage::store;
use archon_host::{Completions, LogWrite};
use archon_types::{PartitionId, PlacementId};
use archon_wal::{Wal, WalBatch, WalError, WalFull};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches that may be in flight or waiting; beyond, the shard accepts no new work.
const BATCHES_MAX: usize = 256;
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The same after the log's queue was full, which ends with its next write.
const RETRY_BUSY_AFTER: Duration = Duration::from_millis(20);
/// Interval between log messages about refusals.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Longest sync on the shard's thread. With a slower disk the log's own thread syncs, as reads and other connections
/// would wait as well.
const HERE_MAX: Duration = Duration::from_millis(2);
/// Bytes of a batch that the shard syncs itself: some operations. If more wait for a sync, more come during it, and the
/// shard's time is better spent on those.
const HERE_BYTES_MAX: usize = 2 * 1024;
/// Batches with a recorded time of durability.
const REMEMBERED_MAX: usize = 4_096;
/// Bytes of data before a trim that may use the log's reserve with it: little of it, since other journals have as much.
const BEFORE_TRIM_BYTES_MAX: usize = 1024 * 1024;
/// Number of batches that go to the log's own thread after a slow one.
const AWAY: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not handed to the log, or refused by it.
    Unsent,
    Sent,
    Done,
}

struct Entry {
    number: u64,
    /// Beginning of its turn.
    turn: Instant,
    /// Shared with the log, which drops it once it is written.
    batch: Arc<WalBatch>,
    completes: Completions,
    state: State,
    /// Holds an epoch, which must reach the disk even if it is full.
    has_epoch: bool,
}

/// Callback for the log's result of a batch, with the batch number.
pub(super) type BatchCallback = Arc<dyn Fn(u64, Result<(), WalError>) + Send + Sync>;

/// The journal.
pub(super) struct Journal {
    wal: Wal,
    /// Distinguishes its batches from those of other journals of the same log.
    producer: u32,
    notify: BatchCallback,
    /// Writes of the present turn.
    batch: WalBatch,
    pub(super) completes: Completions,
    /// True if the turn gathered entries, which must not use the reserved space.
    pub(super) has_data: bool,
    /// True if the turn gathered an epoch.
    pub(super) has_epoch: bool,
    waiting: VecDeque<Entry>,
    /// Beginning of the present turn.
    turn: Instant,
    /// Times of durability of the last batches, by the beginning of their turn, in order.
    durable: VecDeque<(Instant, Instant)>,
    next: u64,
    retry_at: Option<Instant>,
    /// The disk refused the waiting batches, until `retry_at`. Otherwise the log was only busy.
    is_refused: bool,
    told_at: Option<Instant>,
    /// Remaining number of batches for the log's own thread, because the disk was slow.
    away: u32,
    /// Reason why the log will never accept the waiting batches: the node cannot continue.
    failed: Option<WalError>,
}

impl Journal {
    pub(super) fn new(wal: Wal, producer: u32, notify: BatchCallback) -> Self {
        Self {
            wal,
            producer,
            notify,
            batch: WalBatch::new(),
            completes: Completions::default(),
            has_data: false,
            has_epoch: false,
            waiting: VecDeque::new(),
            turn: Instant::now(),
            durable: VecDeque::new(),
            next: 1,
            retry_at: None,
            is_refused: false,
            told_at: None,
            away: 0,
            failed: None,
        }
    }

    /// Starts the turn that began at `turn`.
    pub(super) const fn begin_turn(&mut self, turn: Instant) {
        self.turn = turn;
    }

    /// Returns the beginning of the present turn.
    pub(super) const fn turn(&self) -> Instant {
        self.turn
    }

    /// Returns when the batch of the turn that began then was durable, if it is, and not too many others followed.
    pub(super) fn logged_at(&self, turn: Instant) -> Option<Instant> {
        let found = self.durable.binary_search_by_key(&turn, |(turn, _)| *turn).ok()?;
        self.durable.get(found).map(|(_, at)| *at)
    }

    /// Returns whether the turn gathered anything.
    pub(super) fn has_gathered(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Adds a copy's write to those of this turn.
    pub(super) fn write(&mut self, placement: PlacementId, write: LogWrite) {
        let batch = &mut self.batch;
        match write {
            LogWrite::Open(partition) => store::put_partition(batch, placement, partition),
            LogWrite::Epoch(epoch) => {
                self.has_epoch = true;
                store::put_epoch(batch, placement, epoch);
            }
            LogWrite::Entries(entries) => {
                self.has_data = true;
                entries.into_iter().for_each(|entry| store::put_entry(batch, placement, entry));
            }
            LogWrite::Cut { after } => {
                batch.cut(store::stream(placement), after.get());
            }
            LogWrite::Begin { partition, epoch, base } => {
                batch.drop_stream(store::stream(placement));
                store::put_partition(batch, placement, partition);
                store::put_epoch(batch, placement, epoch);
                store::put_position(batch, placement, store::META_BASE, base);
                store::put_position(batch, placement, store::META_COMPLETE, base);
                store::put_position(batch, placement, store::META_COMMIT, base);
            }
            LogWrite::Complete(at) => store::put_position(batch, placement, store::META_COMPLETE, at),
            LogWrite::Commit(at) => store::put_position(batch, placement, store::META_COMMIT, at),
            LogWrite::Base(at) => store::put_position(batch, placement, store::META_BASE, at),
            LogWrite::Drop => {
                batch.drop_stream(store::stream(placement));
            }
        }
    }

    /// Deletes a copy without engine rows; complete once the log has removed it as well, on disk. A log that refuses
    /// data refuses this behind it, and a restarted node would find the copy in it. Like an epoch it does not wait for
    /// space behind the little data before it: a deletion makes room.
    pub(super) fn delete(&mut self, partition: PartitionId, placement: PlacementId) {
        self.batch.drop_stream(store::stream(placement));
        self.completes.deletions.push((partition, placement));
        self.has_epoch = true;
    }

    /// Hands the turn's batch to the log. With `here`, the idle shard may write and sync it itself, if the log is idle,
    /// the disk fast and the batch small. Returns whether there was anything.
    pub(super) fn submit(&mut self, here: bool) -> bool {
        if self.batch.is_empty() {
            return false;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let has_data = std::mem::take(&mut self.has_data);
        // Notes may use the reserve, but not overtake data that the log refuses: written after them, its older notes
        // would replace theirs, and the log was trimmed by theirs. The writes of this shard stay in order.
        if !has_data {
            batch.urgent();
        }
        batch.ordered(self.producer, self.next);
        let completes = std::mem::take(&mut self.completes);
        let has_epoch = std::mem::take(&mut self.has_epoch);
        let batch = Arc::new(batch);
        let entry = Entry { number: self.next, turn: self.turn, batch, completes, state: State::Unsent, has_epoch };
        self.next += 1;
        self.waiting.push_back(entry);
        // Everything waits behind a refused batch: the log depends on order.
        if self.retry_at.is_none() {
            self.send_unsent(here);
        }
        true
    }

    /// Takes the log's result of a batch; returns what became durable, in order.
    pub(super) fn logged(&mut self, number: u64, result: Result<(), WalError>) -> Vec<Completions> {
        // Behind a refused batch, others may be out of sequence; they are retried with it.
        let behind = self.waiting.iter().take_while(|entry| entry.number != number).any(|e| e.state == State::Unsent);
        let Some(entry) = self.waiting.iter_mut().find(|entry| entry.number == number) else { return Vec::new() };
        match result {
            Ok(()) => entry.state = State::Done,
            Err(error) if behind || matches!(error, WalError::NoSpace { .. }) => {
                if self.told_at.is_none_or(|at| at.elapsed() > TELL_EVERY) {
                    self.told_at = Some(Instant::now());
                    tracing::warn!(%error, "the write-ahead log refused a batch; it is tried again");
                }
                entry.state = State::Unsent;
                self.retry_at = Some(Instant::now() + RETRY_AFTER);
                // Behind a batch without room in the queue, others are out of sequence.
                self.is_refused |= matches!(error, WalError::NoSpace { .. });
            }
            Err(error) => {
                entry.state = State::Unsent;
                self.failed.get_or_insert(error);
            }
        }
        let mut done = Vec::new();
        let now = Instant::now();
        while let Some(entry) = self.waiting.pop_front_if(|entry| entry.state == State::Done) {
            done.push(entry.completes);
            if self.durable.len() >= REMEMBERED_MAX {
                self.durable.pop_front();
            }
            self.durable.push_back((entry.turn, now));
        }
        done
    }

    /// Retries refused batches, once all results of those behind them are in.
    pub(super) fn retry(&mut self) {
        let due = self.retry_at.is_some_and(|at| Instant::now() >= at);
        if due && !self.waiting.iter().any(|entry| entry.state == State::Sent) {
            (self.retry_at, self.is_refused) = (None, false);
            self.send_unsent(false);
        }
    }

    /// Takes the reason why the log will never accept the waiting batches, once.
    pub(super) fn take_failure(&mut self) -> Option<WalError> {
        self.failed.take()
    }

    /// Returns whether the disk refuses batches now, so that no data should be added. A log that is only busy does not
    /// count.
    pub(super) const fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Returns whether so much waits that no new work should be accepted.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= BATCHES_MAX
    }

    /// Returns whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.batch.is_empty()
    }

    fn send_unsent(&mut self, here: bool) {
        // An epoch must not wait for space behind data: the little data before it, which is all there is since new data
        // is refused while the disk is full, may use the reserve as well. So may little data before a trim, which frees
        // more than that.
        let mut bytes = 0;
        let last = self.waiting.iter().enumerate().fold(None, |last, (at, entry)| {
            bytes += entry.batch.bytes();
            let frees = !entry.completes.trims.is_empty() && bytes <= BEFORE_TRIM_BYTES_MAX;
            if entry.state == State::Unsent && (entry.has_epoch || frees) { Some(at) } else { last }
        });
        if let Some(last) = last {
            for entry in self.waiting.iter_mut().take(last + 1) {
                Arc::make_mut(&mut entry.batch).urgent();
            }
        }
        for entry in self.waiting.iter_mut().filter(|entry| entry.state == State::Unsent) {
            let (notify, number) = (self.notify.clone(), entry.number);
            let done = Box::new(move |result| notify(number, result));
            // Kept for a retry.
            let batch = Arc::clone(&entry.batch);
            let appended = if here && self.away == 0 && batch.bytes() <= HERE_BYTES_MAX {
                let began = Instant::now();
                let appended = self.wal.append_here(batch, done);
                if matches!(appended, Ok(true)) && began.elapsed() > HERE_MAX {
                    self.away = AWAY;
                }
                appended.map(drop)
            } else {
                self.away = self.away.saturating_sub(1);
                self.wal.append(batch, done)
            };
            match appended {
                Ok(()) => entry.state = State::Sent,
                Err(WalFull { reason, .. }) if !matches!(*reason, WalError::QueueFull { .. }) => {
                    self.failed.get_or_insert(*reason);
                    return;
                }
                Err(WalFull { reason, .. }) => {
                    tracing::debug!(%reason, "the write-ahead log takes no batch now");
                    self.retry_at = Some(Instant::now() + RETRY_BUSY_AFTER);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
