//! Tests of the journal on real logs, in memory and on disk.

use super::*;
use archon_types::{Seq, TableId};
use archon_wal::disk::{FaultDisk, MemoryDisk};
use archon_wal::{StreamId, WalConfig};
use bytes::Bytes;
use std::sync::mpsc;

/// The results of the log by number of the batch.
type Results = mpsc::Receiver<(u64, Result<(), WalError>)>;

fn journal_with_results(wal: Wal, producer: u32) -> (Journal, Results) {
    let (sender, receiver) = mpsc::channel();
    let notify: BatchCallback = Arc::new(move |number, result| drop(sender.send((number, result))));
    (Journal::new(wal, producer, notify), receiver)
}

fn journal_on_full_disk() -> (Arc<FaultDisk>, Wal, Journal, Results) {
    let disk = Arc::new(FaultDisk::new(Arc::new(MemoryDisk::new())));
    let config = WalConfig { segment_bytes: 4_096, ..WalConfig::default() };
    let (wal, _) = Wal::open_on(disk.clone(), config).unwrap();
    let (journal, results) = journal_with_results(wal.clone(), 3);
    disk.set_full(true);
    (disk, wal, journal, results)
}

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
    let (mut journal, receiver) = journal_with_results(wal, 0);
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
    let (mut journal, receiver) = journal_with_results(wal, 0);
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
    let (mut journal, receiver) = journal_with_results(wal.clone(), 0);
    token(&mut journal, 1);
    let (partition, copy) = (PartitionId::new(TableId::new(1), 0), PlacementId::new(1));
    journal.delete(partition, copy);
    assert!(journal.submit(false), "the log has something to forget");
    let verdicts: Vec<_> = (0..2).map(|_| receiver.recv().unwrap()).collect();
    assert!(verdicts.iter().all(|(_, result)| result.is_ok()), "{verdicts:?}");
    assert_eq!(wal.bounds(store::stream(copy)), None);
    // As if the first had been refused for lack of space, and the deletion behind it as well.
    let deleted = |done: Vec<Completions>| done.into_iter().flat_map(|done| done.deletions).collect::<Vec<_>>();
    for number in [1, 2] {
        let refusal = Err(WalError::NoSpace { bytes: 1 });
        assert_eq!(deleted(journal.logged(number, refusal)), [], "the log still holds it");
    }
    assert_eq!(deleted(journal.logged(1, Ok(()))), []);
    assert_eq!(deleted(journal.logged(2, Ok(()))), [(partition, copy)]);
}

#[test]
fn notes_do_not_overtake_refused_data() {
    let (disk, wal, mut journal, receiver) = journal_on_full_disk();
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
    let (_disk, wal, mut journal, receiver) = journal_on_full_disk();
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
    let (mut journal, receiver) = journal_with_results(wal.clone(), 0);
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
