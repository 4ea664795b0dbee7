//! Journal of a shard: its writes to the write-ahead log, one batch per turn, with completions in order and ordered
//! retries.

use crate::storage::store;
use archon_host::{Completes, LogWrite};
use archon_types::{PartitionId, PlacementId};
use archon_wal::{Wal, WalBatch, WalError, WalFull};
use std::collections::VecDeque;
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
    batch: WalBatch,
    completes: Completes,
    state: State,
    /// Holds an epoch, which must reach the disk even if it is full.
    has_epoch: bool,
}

/// Callback for the log's result of a batch, with the batch number.
pub(super) type Notify = std::sync::Arc<dyn Fn(u64, Result<(), WalError>) + Send + Sync>;

/// The journal.
pub(super) struct Journal {
    wal: Wal,
    /// Distinguishes its batches from those of other journals of the same log.
    producer: u32,
    notify: Notify,
    /// Writes of the present turn.
    batch: WalBatch,
    pub(super) completes: Completes,
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
    pub(super) fn new(wal: Wal, producer: u32, notify: Notify) -> Self {
        Self {
            wal,
            producer,
            notify,
            batch: WalBatch::new(),
            completes: Completes::default(),
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
                entries.iter().for_each(|entry| store::put_entry(batch, placement, entry));
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
    pub(super) fn logged(&mut self, number: u64, result: Result<(), WalError>) -> Vec<Completes> {
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
                entry.batch.urgent();
            }
        }
        for entry in self.waiting.iter_mut().filter(|entry| entry.state == State::Unsent) {
            let (notify, number) = (self.notify.clone(), entry.number);
            let done = Box::new(move |result| notify(number, result));
            // A copy is kept for a retry; entries share their memory.
            let batch = entry.batch.clone();
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
mod tests {
    use super::*;
    use archon_types::{Seq, TableId};
    use archon_wal::disk::{FaultDisk, MemoryDisk};
    use archon_wal::{StreamId, WalConfig};
    use bytes::Bytes;
    use std::sync::{Arc, mpsc};

    fn token(journal: &mut Journal, token: u64) {
        journal.completes.tokens.push((PlacementId::new(1), token));
        journal.batch.put(StreamId(1), token, Bytes::from_static(b"entry"));
        journal.has_data = true;
        assert!(journal.submit(false));
    }

    #[test]
    fn completions_come_in_order_after_refused_batch() {
        let directory = tempfile::tempdir().unwrap();
        let (wal, _) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let notify: Notify = Arc::new(move |number, result| drop(sender.send((number, result))));
        let mut journal = Journal::new(wal, 0, notify);
        for number in 1..=3 {
            token(&mut journal, number);
        }
        let verdicts: Vec<_> = (0..3).map(|_| receiver.recv().unwrap()).collect();
        assert!(verdicts.iter().all(|(_, result)| result.is_ok()));
        // As if the first had been refused for lack of space and the others had passed.
        let refusal = Err(WalError::NoSpace { bytes: 1 });
        assert!(journal.logged(2, Ok(())).is_empty());
        assert!(journal.logged(1, refusal).is_empty());
        assert!(journal.is_refused());
        token(&mut journal, 4);
        assert!(journal.logged(3, Ok(())).is_empty());
        journal.retry_at = Some(Instant::now());
        journal.retry();
        // The log refuses the repeated one as out of sequence here; the test is that nothing behind it completes.
        assert!(journal.take_failure().is_none(), "a disk that is full is no failure");
        let (number, result) = receiver.recv().unwrap();
        assert_eq!(number, 1);
        assert!(result.is_err());
        let done = journal.logged(1, Ok(()));
        let tokens: Vec<u64> = done.iter().flat_map(|done| &done.tokens).map(|(_, token)| *token).collect();
        assert_eq!(tokens, [1, 2, 3]);
    }

    #[test]
    fn journal_knows_when_a_turn_became_durable() {
        let (wal, _) = Wal::open_on(Arc::new(MemoryDisk::new()), WalConfig::default()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let notify: Notify = Arc::new(move |number, result| drop(sender.send((number, result))));
        let mut journal = Journal::new(wal, 0, notify);
        let begun = Instant::now();
        let turn = |number: u64| begun + Duration::from_millis(number);
        let turns = 1..=REMEMBERED_MAX as u64 + 1;
        for number in turns.clone() {
            journal.begin_turn(turn(number));
            token(&mut journal, number);
            assert_eq!(journal.logged_at(turn(number)), None, "not yet");
            let (number, verdict) = receiver.recv().unwrap();
            journal.logged(number, verdict);
        }
        assert_eq!(journal.logged_at(turn(1)), None, "too long ago");
        assert!(turns.skip(1).all(|number| journal.logged_at(turn(number)).is_some()));
        assert_eq!(journal.logged_at(turn(0)), None, "nothing was gathered in that one");
    }

    /// The durable notes of stream 1, and the end of its entries.
    fn stored(wal: &Wal) -> (Option<Bytes>, Option<u64>) {
        (wal.meta(StreamId(1), 7), wal.bounds(StreamId(1)).map(|bounds| bounds.last))
    }

    #[test]
    fn deletion_completes_once_log_has_dropped_the_copy() {
        let (wal, _) = Wal::open_on(Arc::new(MemoryDisk::new()), WalConfig::default()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let notify: Notify = Arc::new(move |number, result| drop(sender.send((number, result))));
        let mut journal = Journal::new(wal.clone(), 0, notify);
        token(&mut journal, 1);
        let (partition, copy) = (PartitionId::new(TableId::new(1), 0), PlacementId::new(1));
        journal.delete(partition, copy);
        assert!(journal.submit(false), "the log has something to forget");
        let verdicts: Vec<_> = (0..2).map(|_| receiver.recv().unwrap()).collect();
        assert!(verdicts.iter().all(|(_, result)| result.is_ok()), "{verdicts:?}");
        assert_eq!(wal.bounds(store::stream(copy)), None);
        // As if the first had been refused for lack of space, and the deletion behind it as well.
        let deleted = |done: Vec<Completes>| done.into_iter().flat_map(|done| done.deletions).collect::<Vec<_>>();
        for number in [1, 2] {
            let refusal = Err(WalError::NoSpace { bytes: 1 });
            assert_eq!(deleted(journal.logged(number, refusal)), [], "the log still holds it");
        }
        assert_eq!(deleted(journal.logged(1, Ok(()))), []);
        assert_eq!(deleted(journal.logged(2, Ok(()))), [(partition, copy)]);
    }

    #[test]
    fn notes_do_not_overtake_refused_data() {
        let disk = Arc::new(FaultDisk::new(Arc::new(MemoryDisk::new())));
        let config = WalConfig { segment_bytes: 4_096, ..WalConfig::default() };
        let (wal, _) = Wal::open_on(disk.clone(), config).unwrap();
        let (sender, receiver) = mpsc::channel();
        let notify: Notify = Arc::new(move |number, result| drop(sender.send((number, result))));
        let mut journal = Journal::new(wal.clone(), 3, notify);
        disk.set_full(true);
        let put = |journal: &mut Journal, seq: u64| {
            journal.batch.put(StreamId(1), seq, Bytes::from(vec![7; 1_500]));
            journal.has_data = true;
            assert!(journal.submit(false));
        };
        let mut seq = 0;
        let refused = loop {
            seq += 1;
            put(&mut journal, seq);
            let (number, result) = receiver.recv().unwrap();
            let refused = result.is_err();
            let _ = journal.logged(number, result);
            if refused {
                break number;
            }
        };
        // As if the result were still on its way: the notes are handed to the log, which keeps space in reserve for
        // them.
        journal.retry_at = None;
        journal.batch.meta(StreamId(1), 7, Bytes::from_static(b"complete"));
        assert!(journal.submit(false));
        let mut verdicts: Vec<_> = (0..2).map(|_| receiver.recv().unwrap()).collect();
        verdicts.sort_by_key(|(number, _)| *number);
        assert_eq!(verdicts.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [refused, refused + 1]);
        assert!(verdicts.iter().all(|(_, result)| matches!(result, Err(WalError::NoSpace { .. }))), "{verdicts:?}");
        // The very first may be refused, if the disk was full before the log had created a file in advance.
        assert_eq!(stored(&wal), (None, (seq > 1).then_some(seq - 1)));
        for (number, result) in verdicts {
            assert!(journal.logged(number, result).is_empty());
        }
        // There is space again: everything is stored, in order, and nothing was discarded.
        disk.set_full(false);
        let until = Instant::now() + Duration::from_secs(20);
        while !journal.is_idle() {
            assert!(Instant::now() < until, "not stored although there is space");
            if let Ok((number, result)) = receiver.recv_timeout(Duration::from_millis(20)) {
                let _ = journal.logged(number, result);
            }
            journal.retry();
        }
        assert!(journal.take_failure().is_none());
        assert_eq!(stored(&wal), (Some(Bytes::from_static(b"complete")), Some(seq)));
    }

    /// Otherwise the trim would wait for the space that it frees.
    #[test]
    fn trim_behind_little_data_uses_reserve_of_full_disk() {
        let disk = Arc::new(FaultDisk::new(Arc::new(MemoryDisk::new())));
        let config = WalConfig { segment_bytes: 4_096, ..WalConfig::default() };
        let (wal, _) = Wal::open_on(disk.clone(), config).unwrap();
        let (sender, receiver) = mpsc::channel();
        let notify: Notify = Arc::new(move |number, result| drop(sender.send((number, result))));
        let mut journal = Journal::new(wal.clone(), 3, notify);
        disk.set_full(true);
        for seq in 1.. {
            token(&mut journal, seq);
            let (number, result) = receiver.recv().unwrap();
            let refused = result.is_err();
            let _ = journal.logged(number, result);
            if refused {
                break;
            }
        }
        journal.batch.meta(StreamId(1), 7, Bytes::from_static(b"base"));
        journal.completes.trims.push((PlacementId::new(1), Seq::new(1)));
        assert!(journal.submit(false));
        let until = Instant::now() + Duration::from_secs(20);
        let mut trims = Vec::new();
        while trims.is_empty() {
            assert!(Instant::now() < until, "the trim waits although there is a reserve");
            if let Ok((number, result)) = receiver.recv_timeout(Duration::from_millis(20)) {
                trims.extend(journal.logged(number, result).into_iter().flat_map(|done| done.trims));
            }
            journal.retry();
        }
        assert_eq!(trims, [(PlacementId::new(1), Seq::new(1))]);
        assert!(journal.is_idle() && wal.read_only());
    }

    #[test]
    fn busy_log_does_not_count_as_refusing() {
        let config = WalConfig { queue_bytes_max: 64 * 1024, ..WalConfig::default() };
        let (wal, _) = Wal::open_on(Arc::new(MemoryDisk::new()), config.clone()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let notify: Notify = Arc::new(move |number, result| drop(sender.send((number, result))));
        let mut journal = Journal::new(wal.clone(), 0, notify);
        // The callback blocks the writer of the log, so that later batches stay in the queue.
        let (begun, begins) = mpsc::channel();
        let (free, wait) = mpsc::channel::<()>();
        let mut batch = WalBatch::new();
        batch.put(StreamId(2), 1, Bytes::from_static(b"first"));
        let hold = move |_| {
            let _ = begun.send(());
            let _ = wait.recv();
        };
        wal.append(batch, Box::new(hold)).unwrap();
        begins.recv().unwrap();
        let mut batch = WalBatch::new();
        batch.put(StreamId(2), 2, Bytes::from(vec![7; config.queue_bytes_max - 4_096]));
        wal.append(batch, Box::new(|_| ())).unwrap();
        journal.completes.tokens.push((PlacementId::new(1), 1));
        journal.batch.put(StreamId(1), 1, Bytes::from(vec![7; 8_192]));
        journal.has_data = true;
        assert!(journal.submit(false));
        assert!(journal.retry_at.is_some(), "the queue has no room");
        assert!(!journal.is_refused(), "partitions would be read-only");
        drop(free);
        let until = Instant::now() + Duration::from_secs(20);
        while !journal.is_idle() {
            assert!(Instant::now() < until, "not stored although there is room");
            if let Ok((number, result)) = receiver.recv_timeout(Duration::from_millis(20)) {
                assert!(result.is_ok(), "{result:?}");
                let _ = journal.logged(number, result);
            }
            journal.retry();
        }
    }

    #[test]
    fn journal_retries_only_lack_of_space() {
        let directory = tempfile::tempdir().unwrap();
        let (wal, _) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let mut journal = Journal::new(wal, 0, Arc::new(|_, _| ()));
        for number in 1..=3 {
            token(&mut journal, number);
        }
        let sequence = || Err(WalError::Sequence { stream: StreamId(1), seq: 2, expected: 1, or_above: false });
        assert!(journal.logged(1, Err(WalError::NoSpace { bytes: 1 })).is_empty());
        assert!(journal.logged(2, sequence()).is_empty());
        assert!(journal.take_failure().is_none(), "it is out of sequence only because the one before it was refused");
        let directory = tempfile::tempdir().unwrap();
        let (wal, _) = Wal::open(directory.path(), WalConfig::default()).unwrap();
        let mut journal = Journal::new(wal, 0, Arc::new(|_, _| ()));
        token(&mut journal, 1);
        assert!(journal.logged(1, sequence()).is_empty());
        assert!(matches!(journal.take_failure(), Some(WalError::Sequence { .. })));
    }
}
