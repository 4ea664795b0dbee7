//! Guarantees to callers: order, atomicity, queue bounds, reading, closing.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{LIMIT, put};
use archon_testkit::wait_for;
use archon_wal::disk::MemoryDisk;
use archon_wal::{Bounds, HEAD_BYTES_MAX, META_BYTES_MAX, StreamId, Wal, WalBatch, WalConfig, WalError};
use bytes::Bytes;

const TIMEOUT: Duration = Duration::from_secs(60);
const ONE: StreamId = StreamId(1);

fn open(config: WalConfig) -> Wal {
    Wal::open_on(Arc::new(MemoryDisk::new()), config).unwrap().0
}

fn small() -> WalConfig {
    WalConfig { segment_bytes: 4096, ..WalConfig::default() }
}

#[test]
fn callbacks_run_in_order_across_threads() {
    let wal = open(small());
    let seen = Arc::new(Mutex::new(vec![Vec::new(); 4]));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (wal, seen) = (wal.clone(), seen.clone());
            scope.spawn(move || {
                for seq in 1..=200 {
                    let mut batch = WalBatch::new();
                    batch.put(StreamId(thread), seq, Bytes::from(vec![9; 40]));
                    let seen = seen.clone();
                    wal.append(
                        batch,
                        Box::new(move |result| {
                            result.unwrap();
                            seen.lock().unwrap()[thread as usize].push(seq);
                        }),
                    )
                    .unwrap();
                }
            });
        }
    });
    wal.append_wait(WalBatch::new()).unwrap();
    for order in seen.lock().unwrap().iter() {
        assert_eq!(order, &(1..=200).collect::<Vec<_>>());
    }
    let progress = wal.progress();
    assert_eq!(progress.batches, 800);
    assert!(progress.fsyncs > 0 && progress.bytes > 800 * 40, "{progress:?}");
    wait_for("the writer rests", LIMIT, || match wal.progress().outstanding_since {
        None => Ok(()),
        since => Err(format!("{since:?}")),
    });
}

#[test]
fn observer_receives_duration_of_each_durable_write() {
    let wal = open(small());
    put(&wal, 1, 1, b"before").unwrap();
    let (told, heard) = mpsc::channel();
    let before = wal.progress().fsyncs;
    let begun = Instant::now();
    assert!(wal.observe_syncs(move |took| told.send(took).unwrap()));
    assert!(!wal.observe_syncs(|_| panic!("somebody is told already")));
    for seq in 2..=6 {
        put(&wal, 1, seq, b"observed").unwrap();
    }
    let writes = wal.progress().fsyncs - before;
    let times: Vec<_> = heard.try_iter().collect();
    assert_eq!(times.len() as u64, writes);
    assert!(writes >= 5 && times.iter().all(|took| !took.is_zero() && *took <= begun.elapsed()), "{times:?}");
}

#[test]
fn batch_with_one_wrong_number_changes_nothing() {
    let wal = open(small());
    put(&wal, 1, 5, b"five").unwrap();
    let mut batch = WalBatch::new();
    batch.meta(ONE, 0, "m".into()).put(StreamId(2), 1, "x".into()).put(ONE, 7, "gap".into());
    match wal.append_wait(batch).unwrap_err() {
        WalError::Sequence { stream: ONE, seq: 7, expected: 6, or_above: false } => {}
        other => panic!("{other}"),
    }
    assert_eq!(wal.meta(ONE, 0), None);
    assert_eq!(wal.streams(), [ONE]);
    put(&wal, 1, 6, b"six").unwrap();
    let error = WalError::Sequence { stream: ONE, seq: 7, expected: 9, or_above: true };
    assert_eq!(error.to_string(), "wal stream 1: put 7 refused, the next number is 9 or above");
}

#[test]
fn read_is_bounded_and_names_missing_records() {
    let wal = open(small());
    assert!(wal.read(ONE, 1, 100).unwrap().is_empty(), "an unknown stream is empty");
    (1..=30).for_each(|seq| put(&wal, 1, seq, &[seq as u8; 200]).unwrap());
    let page = wal.read(ONE, 4, 1000).unwrap();
    assert_eq!(page.iter().map(|record| record.seq).collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert_eq!(page[1].data, vec![5; 200]);
    assert_eq!(wal.read(ONE, 4, 0).unwrap().len(), 1, "one at least");
    assert_eq!(wal.read(ONE, 1, usize::MAX).unwrap().len(), 30);
    assert!(wal.read(ONE, 31, 100).unwrap().is_empty());
    assert!(wal.read(ONE, u64::MAX, 100).unwrap().is_empty());
    wal.trim(ONE, 9);
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 10, last: 30 }), "at once");
    let error = wal.read(ONE, 9, 100).unwrap_err();
    assert!(matches!(error, WalError::Missing { seq: 9, .. }), "{error}");
    assert_eq!(wal.read(ONE, 10, 100).unwrap()[0].seq, 10);
    wal.trim(ONE, u64::MAX);
    assert_eq!(wal.bounds(ONE), None);
    put(&wal, 1, 31, b"goes on").unwrap();
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 31, last: 31 }));
    assert_eq!(wal.read(ONE, 31, 100).unwrap().len(), 1);
}

#[test]
fn readers_are_not_affected_by_recycling() {
    let wal = open(small());
    std::thread::scope(|scope| {
        let writer = wal.clone();
        scope.spawn(move || {
            for seq in 1..=1500u64 {
                put(&writer, 1, seq, &seq.to_le_bytes().repeat(20)).unwrap();
                writer.trim(ONE, seq.saturating_sub(4));
            }
        });
        let mut last = 0;
        while last < 1500 {
            let Some(bounds) = wal.bounds(ONE) else { continue };
            match wal.read(ONE, bounds.first, usize::MAX) {
                Ok(records) => {
                    for record in records {
                        assert_eq!(record.data, record.seq.to_le_bytes().repeat(20));
                        last = last.max(record.seq);
                    }
                }
                Err(WalError::Missing { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    });
}

#[test]
fn full_queue_returns_the_batch() {
    let config = WalConfig { queue_bytes_max: 4096, ..small() };
    let wal = open(config);
    let mut batch = WalBatch::new();
    batch.put(ONE, 1, Bytes::from(vec![0; 5000]));
    let full = wal.append(batch.clone(), Box::new(|_| ())).unwrap_err();
    assert!(matches!(*full.reason, WalError::BatchTooLarge { .. }), "{full}");
    assert_eq!(*full.batch, batch);

    // A callback holds the writer, so the queue fills.
    let (release, held) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel::<()>();
    wal.append(
        WalBatch::new(),
        Box::new(move |_| {
            let _ = entered.send(());
            let _ = held.recv();
        }),
    )
    .unwrap();
    // Before the callback runs, the writer may take queued batches, and the queue accepts more than its bound in
    // total.
    inside.recv().unwrap();
    let mut seq = 1;
    let full = loop {
        let mut batch = WalBatch::new();
        batch.put(ONE, seq, Bytes::from(vec![0; 100]));
        match wal.append(batch, Box::new(|result| result.unwrap())) {
            Ok(()) => seq += 1,
            Err(full) => break full,
        }
    };
    assert!(matches!(*full.reason, WalError::QueueFull { max: 4096, .. }), "{full}");
    assert!((10..40).contains(&seq), "{seq}");
    release.send(()).unwrap();
    wait_for("space again", LIMIT, || put(&wal, 1, seq, b"x").map_err(|error| error.to_string()));
}

/// Returns a batch of these records.
fn batch_of(records: &[Vec<u8>]) -> WalBatch {
    let mut batch = WalBatch::new();
    for (number, record) in records.iter().enumerate() {
        batch.put(ONE, number as u64 + 1, Bytes::from(record.clone()));
    }
    batch
}

/// Returns the records of a batch that takes `bytes` in the log: one record, or many of one byte and a last one with
/// the rest.
fn records_of(bytes: usize, tiny: bool) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    if tiny {
        // At least ten bytes are left for the last record.
        let with = |count: usize| batch_of(&vec![vec![1]; count]).bytes();
        let count = (1..).find(|count| with(count + 1) + 10 > bytes).unwrap();
        records = vec![vec![1]; count - 1];
    }
    records.push(Vec::new());
    while batch_of(&records).bytes() < bytes {
        records.last_mut().unwrap().extend([2; 8]);
    }
    assert_eq!(batch_of(&records).bytes(), bytes, "batches take multiples of eight bytes");
    records
}

#[test]
fn batch_at_the_bound_is_read_back_and_one_above_refused() {
    let config = WalConfig { queue_bytes_max: 8192, ..small() };
    let largest = {
        let wal = open(config.clone());
        let refused = wal.append(batch_of(&[vec![0; 9_000]]), Box::new(|_| ())).unwrap_err();
        let WalError::BatchTooLarge { max, .. } = *refused.reason else { panic!("{refused}") };
        max / 8 * 8
    };
    for tiny in [false, true] {
        for bytes in [largest - 8, largest, largest + 8] {
            let disk = MemoryDisk::new();
            let (wal, _) = Wal::open_on(Arc::new(disk.clone()), config.clone()).unwrap();
            let records = records_of(bytes, tiny);
            assert_eq!(tiny, records.len() > 100);
            let written = wal.append_wait(batch_of(&records));
            assert_eq!(written.is_ok(), bytes <= largest, "{bytes} bytes, tiny: {tiny}: {written:?}");
            wal.close(TIMEOUT).unwrap();
            let (wal, _) = Wal::open_on(Arc::new(disk), config.clone()).unwrap();
            let read: Vec<_> = wal.read(ONE, 1, usize::MAX).unwrap().into_iter().map(|record| record.data).collect();
            let expected = if bytes <= largest { records } else { Vec::new() };
            assert!(read == expected, "{bytes} bytes, tiny: {tiny}: {} records", read.len());
        }
    }
}

#[test]
fn large_batches_and_many_metas_outgrow_a_segment() {
    let disk = MemoryDisk::new();
    let (wal, _) = Wal::open_on(Arc::new(disk.clone()), small()).unwrap();
    put(&wal, 1, 1, &[3; 50_000]).unwrap();
    for key in 0..100 {
        let mut batch = WalBatch::new();
        batch.meta(StreamId(2), key, Bytes::from(vec![key as u8; 100]));
        wal.append_wait(batch).unwrap();
    }
    put(&wal, 1, 2, &[4; 50_000]).unwrap();
    wal.close(TIMEOUT).unwrap();
    let (wal, recovered) = Wal::open_on(Arc::new(disk), small()).unwrap();
    assert_eq!(recovered.streams[&StreamId(2)].metas.len(), 100);
    assert_eq!(wal.read(ONE, 1, usize::MAX).unwrap()[1].data, vec![4; 50_000]);
}

#[test]
fn close_drains_the_queue_and_refuses_later_appends() {
    let disk = MemoryDisk::new();
    let (wal, _) = Wal::open_on(Arc::new(disk.clone()), small()).unwrap();
    let other = wal.clone();
    for seq in 1..=50 {
        let mut batch = WalBatch::new();
        batch.put(ONE, seq, Bytes::from(vec![1; 100]));
        wal.append(batch, Box::new(|result| result.unwrap())).unwrap();
    }
    wal.close(TIMEOUT).unwrap();
    assert_eq!(other.bounds(ONE), Some(Bounds { first: 1, last: 50 }));
    assert!(matches!(put(&other, 1, 51, b"x"), Err(WalError::Closed)));
    drop(other);
    let (wal, _) = Wal::open_on(Arc::new(disk), small()).unwrap();
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 1, last: 50 }));
}

#[test]
fn close_times_out_when_the_writer_is_stuck() {
    let wal = open(small());
    let (release, held) = mpsc::channel::<()>();
    wal.append(
        WalBatch::new(),
        Box::new(move |_| {
            let _ = held.recv();
        }),
    )
    .unwrap();
    let error = wal.close(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, WalError::CloseTimeout { timeout_ms: 20 }), "{error}");
    release.send(()).unwrap();
}

#[test]
fn callback_may_drop_the_last_handle() {
    let wal = open(small());
    let (sender, receiver) = mpsc::channel();
    let last = wal.clone();
    let (go, wait) = mpsc::channel::<()>();
    wal.append(
        WalBatch::new(),
        Box::new(move |_| {
            let _ = wait.recv();
            drop(last);
            let _ = sender.send(());
        }),
    )
    .unwrap();
    let dropper = std::thread::spawn(move || drop(wal));
    dropper.join().unwrap();
    go.send(()).unwrap();
    receiver.recv_timeout(TIMEOUT).unwrap();
}

#[test]
fn directory_is_created_with_its_parents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/wal");
    let (wal, _) = Wal::open(&path, WalConfig { segment_bytes: 64 * 1024, ..small() }).unwrap();
    put(&wal, 1, 1, b"x").unwrap();
    wal.close(TIMEOUT).unwrap();
    let (_, recovered) = Wal::open(&path, WalConfig::default()).unwrap();
    assert_eq!(recovered.streams[&ONE].bounds, Some(Bounds { first: 1, last: 1 }));
}

#[test]
fn meta_beyond_its_limit_is_refused() {
    let (wal, _) = Wal::open_on(Arc::new(MemoryDisk::new()), WalConfig::default()).unwrap();
    let of = |bytes: usize| {
        let mut batch = WalBatch::new();
        batch.meta(ONE, 3, Bytes::from(vec![7; bytes]));
        batch
    };
    wal.append_wait(of(META_BYTES_MAX)).unwrap();
    let refused = wal.append_wait(of(META_BYTES_MAX + 1)).unwrap_err();
    assert!(matches!(refused, WalError::MetaTooLarge { stream: ONE, key: 3, .. }), "{refused}");
    assert_eq!(wal.meta(ONE, 3).map(|held| held.len()), Some(META_BYTES_MAX));
}

#[test]
fn record_in_two_pieces_is_stored_joined() {
    let disk = Arc::new(MemoryDisk::new());
    let (wal, _) = Wal::open_on(disk.clone(), small()).unwrap();
    let mut batch = WalBatch::new();
    batch.put_headed(ONE, 1, b"\xac\x02", Bytes::from_static(b"data"));
    batch.put_headed(ONE, 2, b"\x07", Bytes::new());
    let mut joined = WalBatch::new();
    joined.put(ONE, 3, Bytes::from_static(b"\xac\x02data")).put(ONE, 4, Bytes::from_static(b"\x07"));
    assert_eq!(batch.bytes(), joined.bytes());
    wal.append_wait(batch).unwrap();
    wal.append_wait(joined).unwrap();
    let stored = |wal: &Wal| -> Vec<Bytes> {
        wal.read(ONE, 1, usize::MAX).unwrap().into_iter().map(|record| record.data).collect()
    };
    let right = [&b"\xac\x02data"[..], b"\x07", b"\xac\x02data", b"\x07"];
    assert_eq!(stored(&wal), right);
    let mut long = WalBatch::new();
    long.put_headed(ONE, 5, &[1; HEAD_BYTES_MAX], Bytes::from_static(b"x"));
    long.put_headed(ONE, 6, &[1; HEAD_BYTES_MAX + 1], Bytes::from_static(b"x"));
    wal.append_wait(long).unwrap();
    let longer = [HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1].map(|bytes| [&vec![1; bytes][..], b"x"].concat());
    let right = [&right[..], &longer.each_ref().map(|record| &record[..])].concat();
    assert_eq!(stored(&wal), right);
    wal.close(TIMEOUT).unwrap();
    assert_eq!(stored(&Wal::open_on(disk, small()).unwrap().0), right, "after a restart");
}
