//! Race conditions that need access to internals.

use crate::mark::MARK_NAME;
use std::sync::mpsc;

use super::*;
use crate::disk::MemoryDisk;
use crate::format::{FRAME_HEADER_BYTES, OP_HEADER_BYTES};

const ONE: StreamId = StreamId(1);

fn open(disk: &MemoryDisk) -> (Wal, RecoveredLog) {
    let config = WalConfig { segment_bytes: 4096, ..WalConfig::default() };
    Wal::open_on(Arc::new(disk.clone()), config).unwrap()
}

fn put(wal: &Wal, seq: u64, bytes: usize) -> Result<(), WalError> {
    let mut batch = WalBatch::new();
    batch.put(ONE, seq, Bytes::from(vec![seq as u8; bytes]));
    wal.append_wait(batch)
}

/// Holds the writer thread until the sender is used or dropped.
fn hold(wal: &Wal) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel();
    let (reached, wait) = mpsc::channel();
    let callback = move |_| {
        let _ = reached.send(());
        let _ = held.recv();
    };
    wal.append(WalBatch::new(), Box::new(callback)).unwrap();
    wait.recv().unwrap();
    release
}

#[test]
fn segment_in_use_by_reader_is_not_overwritten() {
    let (wal, _) = open(&MemoryDisk::new());
    (1..=5).for_each(|seq| put(&wal, seq, 300).unwrap());
    let plan = Plan::new(&wal.handle.shared.index.read(), ONE, 1, usize::MAX).unwrap();
    for seq in 6..=200 {
        put(&wal, seq, 300).unwrap();
        wal.trim(ONE, seq);
    }
    assert!(wal.disk_bytes() <= 8 * 4096, "the segment was given up");
    let records = plan.fetch().unwrap();
    assert_eq!(records.len(), 5);
    assert!(records.iter().all(|record| record.data == vec![record.seq as u8; 300]));
}

#[test]
fn remains_of_cut_torn_write_never_return() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    let release = hold(&wal);
    for seq in 1..=2 {
        let mut batch = WalBatch::new();
        batch.put(ONE, seq, Bytes::from(vec![seq as u8; 400]));
        wal.append(batch, Box::new(|_| ())).unwrap();
    }
    release.send(()).unwrap();
    wal.close(Duration::from_secs(20)).unwrap();
    // Both went in one write. A sector of the first was lost, the second is whole.
    let name = crate::segment::segment_name(1);
    let first = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES;
    assert!(disk.decay(&name, first + 100, |byte| !byte));
    // The power failed before the sync, so no note says that it was durable.
    disk.remove(MARK_NAME).unwrap();

    let (wal, recovered) = open(&disk);
    assert!(recovered.damaged.is_empty(), "{recovered:?}");
    assert_eq!(wal.bounds(ONE), None);
    // The same batch again: the remainder would follow it as it followed the first one.
    put(&wal, 1, 400).unwrap();
    wal.close(Duration::from_secs(20)).unwrap();
    let (wal, recovered) = open(&disk);
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 1, last: 1 }), "{recovered:?}");
}

#[test]
fn reappearing_remainder_is_not_read_as_next_batch() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    (1..=2).for_each(|seq| put(&wal, seq, 400).unwrap());
    wal.close(Duration::from_secs(20)).unwrap();
    let name = crate::segment::segment_name(1);
    let before = disk.contents(&name).unwrap();
    // Header and empty snapshot, then two frames of one step each.
    let first = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES;
    let second = first + FRAME_HEADER_BYTES + OP_HEADER_BYTES + 400;
    let end = second + FRAME_HEADER_BYTES + OP_HEADER_BYTES + 400;

    // The end is lost, so another first record follows; then the old second one reappears, as if its erasure never
    // reached the disk.
    (first..end).for_each(|at| assert!(disk.decay(&name, at, |_| 0)));
    disk.remove(MARK_NAME).unwrap();
    let (wal, _) = open(&disk);
    assert_eq!(wal.bounds(ONE), None);
    let mut batch = WalBatch::new();
    batch.put(ONE, 1, Bytes::from(vec![0xee; 400]));
    wal.append_wait(batch).unwrap();
    wal.close(Duration::from_secs(20)).unwrap();
    (second..end).for_each(|at| assert!(disk.decay(&name, at, |_| before[at])));

    let (wal, recovered) = open(&disk);
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 1, last: 1 }), "{recovered:?}");
    assert!(recovered.damaged.is_empty(), "{recovered:?}");
}

/// Appends one record on this thread if the log allows it; returns whether it did.
fn put_here(wal: &Wal, seq: u64, bytes: usize) -> bool {
    let mut batch = WalBatch::new();
    batch.put(ONE, seq, Bytes::from(vec![seq as u8; bytes]));
    let (sender, receiver) = mpsc::channel();
    let caller = thread::current().id();
    let done = move |result: Result<(), WalError>| drop(sender.send((result, thread::current().id() == caller)));
    let here = wal.append_here(batch, Box::new(done)).unwrap();
    let told = if here { receiver.try_recv().ok() } else { receiver.recv().ok() };
    let (result, by_caller) = told.expect("called back, at once if it was written here");
    result.unwrap();
    assert_eq!(by_caller, here);
    here
}

#[test]
fn idle_log_is_written_by_caller_and_busy_one_by_thread() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    assert!(put_here(&wal, 1, 100));
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 1, last: 1 }));
    let release = hold(&wal);
    let mut batch = WalBatch::new();
    batch.put(ONE, 2, Bytes::from_static(b"two"));
    let (sender, receiver) = mpsc::channel();
    let here = wal.append_here(batch, Box::new(move |result| drop(sender.send(result)))).unwrap();
    assert!(!here, "the thread is at work");
    assert!(receiver.try_recv().is_err());
    release.send(()).unwrap();
    receiver.recv().unwrap().unwrap();
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 1, last: 2 }));
    wal.close(Duration::from_secs(20)).unwrap();
    let (wal, recovered) = open(&disk);
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 1, last: 2 }), "{recovered:?}");
}

#[test]
fn caller_does_not_start_another_segment() {
    let (wal, _) = open(&MemoryDisk::new());
    let here: Vec<bool> = (1..=30).map(|seq| put_here(&wal, seq, 400)).collect();
    assert!(here.contains(&false) && here.contains(&true), "{here:?}");
    assert_eq!(wal.bounds(ONE), Some(Bounds { first: 1, last: 30 }));
}

#[test]
fn concurrent_writes_of_callers_and_thread_stay_ordered() {
    let disk = MemoryDisk::new();
    let config = WalConfig { segment_bytes: 1 << 20, ..WalConfig::default() };
    let (wal, _) = Wal::open_on(Arc::new(disk.clone()), config.clone()).unwrap();
    thread::scope(|scope| {
        for stream in 1..=4_u64 {
            let wal = wal.clone();
            scope.spawn(move || {
                let (sender, receiver) = mpsc::channel();
                for seq in 1..=500 {
                    let mut batch = WalBatch::new();
                    batch.put(StreamId(stream), seq, Bytes::from(seq.to_le_bytes().to_vec()));
                    let sender = sender.clone();
                    let done: CompletionCallback =
                        Box::new(move |result: Result<(), WalError>| drop(sender.send((seq, result))));
                    match (seq + stream) % 3 {
                        0 => wal.append(batch, done).unwrap(),
                        _ => drop(wal.append_here(batch, done).unwrap()),
                    }
                }
                drop(sender);
                let told: Vec<u64> = receiver.iter().map(|(seq, result)| result.map(|()| seq).unwrap()).collect();
                assert_eq!(told, (1..=500).collect::<Vec<_>>());
            });
        }
    });
    wal.close(Duration::from_secs(20)).unwrap();
    let (wal, recovered) = Wal::open_on(Arc::new(disk), config).unwrap();
    assert!(recovered.damaged.is_empty(), "{recovered:?}");
    for stream in 1..=4 {
        let records = wal.read(StreamId(stream), 1, usize::MAX).unwrap();
        let expected = (1..=500_u64).map(|seq| Bytes::from(seq.to_le_bytes().to_vec()));
        assert!(records.iter().map(|record| record.data.clone()).eq(expected));
    }
}

#[test]
fn power_loss_during_write_of_caller_ends_the_log() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    assert!(put_here(&wal, 1, 100));
    disk.fail_power_after(0);
    let mut batch = WalBatch::new();
    batch.put(ONE, 2, Bytes::from_static(b"two"));
    let (sender, receiver) = mpsc::channel();
    wal.append_here(batch, Box::new(move |result| drop(sender.send(result)))).unwrap();
    assert!(matches!(receiver.recv().unwrap(), Err(WalError::Closed)));
    wal.close(Duration::from_secs(20)).unwrap();
}
