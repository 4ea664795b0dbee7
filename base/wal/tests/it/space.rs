//! Full disk: read-only with a reserve for urgent batches, and writable again when space returns.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{LIMIT, put, read_all};
use archon_testkit::wait_for;
use archon_wal::disk::{FaultDisk, MemoryDisk};
use archon_wal::{StreamId, Wal, WalBatch, WalConfig, WalError};

const TIMEOUT: Duration = Duration::from_secs(60);

fn config() -> WalConfig {
    WalConfig { segment_bytes: 4096, recycled_segments_max: 0, ..WalConfig::default() }
}

/// Writes until the log reports a full disk; returns the last written number.
fn fill(wal: &Wal, from: u64) -> u64 {
    for seq in from..from + 1000 {
        match put(wal, 1, seq, &[7; 500]) {
            Ok(()) => {}
            Err(WalError::NoSpace { bytes: 4096 }) => return seq - 1,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never became full");
}

fn urgent(wal: &Wal, stream: u64, epoch: u8) -> Result<(), WalError> {
    let mut batch = WalBatch::new();
    batch.meta(StreamId(stream), 0, vec![epoch].into()).urgent();
    wal.append_wait(batch)
}

/// Returns a log with one record and prepared segments.
fn ready_log() -> (MemoryDisk, Arc<FaultDisk>, Wal) {
    let memory = MemoryDisk::new();
    let disk = Arc::new(FaultDisk::new(Arc::new(memory.clone())));
    let (wal, _) = Wal::open_on(disk.clone(), config()).unwrap();
    put(&wal, 1, 1, b"first").unwrap();
    wait_for("one segment ready and one in reserve", LIMIT, || match wal.disk_bytes() {
        12_288 => Ok(()),
        bytes => Err(format!("{bytes} bytes")),
    });
    (memory, disk, wal)
}

fn full_log() -> (MemoryDisk, Arc<FaultDisk>, Wal, u64) {
    let (memory, disk, wal) = ready_log();
    disk.set_full(true);
    let last = fill(&wal, 2);
    (memory, disk, wal, last)
}

#[test]
fn full_disk_allows_only_reads_and_urgent_batches() {
    let (memory, disk, wal, last) = full_log();
    assert!(wal.read_only());
    assert_eq!(read_all(&wal, 1).unwrap().len() as u64, last);
    let refused = put(&wal, 1, last + 1, b"x").unwrap_err();
    assert!(matches!(refused, WalError::NoSpace { .. }) && refused.is_retryable(), "{refused}");
    // More than fits into the rest of the segment: uses the reserve.
    (1..=40).for_each(|epoch| urgent(&wal, 5, epoch).unwrap());
    assert!(wal.read_only());

    disk.set_full(false);
    wait_for("the log takes writes again", LIMIT, || match wal.read_only() {
        true => Err("still read-only".to_owned()),
        false => Ok(()),
    });
    put(&wal, 1, last + 1, b"back").unwrap();
    wal.close(TIMEOUT).unwrap();
    let (wal, recovered) = Wal::open_on(Arc::new(memory), config()).unwrap();
    assert!(recovered.damaged.is_empty());
    assert_eq!(wal.bounds(StreamId(1)).unwrap().last, last + 1);
    assert_eq!(wal.meta(StreamId(5), 0).unwrap().as_ref(), [40]);
}

/// Callers that must not be refused need to know the guaranteed space in advance.
#[test]
fn sure_space_fits_on_a_full_disk() {
    for (largest, size) in [(600, 500), (600, 100), (1500, 1400), (3000, 2900)] {
        let (_memory, disk, wal) = ready_log();
        assert_eq!(wal.shortage(), None);
        disk.set_full(true);
        // Enough to use the reserve, last of all, whatever is left of the segment.
        let mut last = 1;
        let mut taken = 0;
        while let space = wal.sure_space(largest)
            && space > 0
        {
            last += 1;
            let mut batch = WalBatch::new();
            batch.put(StreamId(1), last, vec![7; size].into()).urgent();
            let bytes = batch.bytes() as u64;
            assert!(bytes <= largest, "{bytes}");
            wal.append_wait(batch).unwrap_or_else(|error| panic!("{space} bytes were sure, {bytes} refused: {error}"));
            taken += bytes;
        }
        // Two files were ready.
        assert!(taken > 4096, "{taken} bytes of {largest} at most");
        wait_for("the helper to find that the disk is full", LIMIT, || match wal.shortage() {
            Some(shortage) if shortage.is_full() && shortage.needed_bytes == 4096 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        disk.set_full(false);
        wait_for("the log to have space", LIMIT, || match (wal.shortage(), wal.sure_space(largest)) {
            (None, space) if space > 0 => Ok(()),
            found => Err(format!("{found:?}")),
        });
    }
}

#[test]
fn trim_makes_full_disk_writable() {
    let (_memory, _disk, wal, last) = full_log();
    wal.trim(StreamId(1), last);
    wait_for("recycled segments let writes through", LIMIT, || {
        put(&wal, 1, last + 1, b"in a recycled segment").map_err(|error| error.to_string())
    });
    assert!(!wal.read_only());
}

#[test]
fn log_opens_and_reads_on_a_full_disk() {
    let (memory, _, wal, last) = full_log();
    wal.close(TIMEOUT).unwrap();
    let disk = Arc::new(FaultDisk::new(Arc::new(memory)));
    disk.set_full(true);
    let (wal, recovered) = Wal::open_on(disk, config()).unwrap();
    assert!(recovered.damaged.is_empty());
    assert_eq!(read_all(&wal, 1).unwrap().len() as u64, last);
    urgent(&wal, 2, 1).unwrap();
}

#[test]
fn new_log_on_a_full_disk_fails_with_no_space() {
    let disk = Arc::new(FaultDisk::new(Arc::new(MemoryDisk::new())));
    disk.set_full(true);
    let error = Wal::open_on(disk, config()).unwrap_err();
    assert!(matches!(error, WalError::NoSpace { bytes: 4096 }), "{error}");
}

#[test]
fn trimmed_log_stays_small_and_names_pinning_streams() {
    let (wal, _) = Wal::open_on(Arc::new(MemoryDisk::new()), config()).unwrap();
    for seq in 1..=400 {
        put(&wal, 1, seq, &[1; 300]).unwrap();
        wal.trim(StreamId(1), seq.saturating_sub(3));
        // Freed segments may not be recycled yet.
        assert!(wal.disk_bytes() <= 8 * 4096, "{} bytes after {seq}", wal.disk_bytes());
    }
    put(&wal, 9, 1, b"left behind").unwrap();
    for seq in 401..=500 {
        put(&wal, 1, seq, &[1; 300]).unwrap();
        wal.trim(StreamId(1), seq);
    }
    let pinned = wal.oldest_pinned().unwrap();
    assert_eq!(pinned.streams, [StreamId(9)]);
    assert!(pinned.bytes >= 5 * 4096, "{pinned:?}");
    wal.trim(StreamId(9), 1);
    wait_for("the segments are reused", LIMIT, || match wal.disk_bytes() {
        bytes if bytes <= 6 * 4096 => Ok(()),
        bytes => Err(format!("{bytes} bytes")),
    });
}

/// Writes records of stream 1, which is trimmed all the time.
fn churn(wal: &Wal, from: u64, records: u64) -> u64 {
    for seq in from..from + records {
        put(wal, 1, seq, &[1; 300]).unwrap();
        wal.trim(StreamId(1), seq);
    }
    from + records
}

#[test]
fn old_records_are_relocated_beyond_the_bound() {
    let memory = MemoryDisk::new();
    let config = WalConfig { kept_bytes_max: 8 * 4096, ..config() };
    let (wal, _) = Wal::open_on(Arc::new(memory.clone()), config.clone()).unwrap();
    let mut next = churn(&wal, 1, 20);
    for (stream, records) in [(8, 1), (9, 3)] {
        (1..=records).for_each(|seq| put(&wal, stream, seq, format!("{stream}/{seq}").as_bytes()).unwrap());
        next = churn(&wal, next, 20);
    }
    for _ in 0..20 {
        next = churn(&wal, next, 50);
        // The bound, the newest segment, prepared files, and files being recycled.
        assert!(wal.disk_bytes() <= (8 + 1 + 4 + 4) * 4096, "{} bytes before record {next}", wal.disk_bytes());
    }
    assert!(wal.progress().relocated > 0);
    let check = |wal: &Wal| {
        for (stream, records) in [(8, 1), (9, 3)] {
            let found = read_all(wal, stream).unwrap();
            let expected = (1..=records).map(|seq| (seq, format!("{stream}/{seq}").into_bytes()));
            assert_eq!(found, expected.collect());
        }
    };
    check(&wal);
    // The moved streams continue like streams that were never moved.
    put(&wal, 8, 2, b"8/2").unwrap();
    wal.trim(StreamId(8), 1);
    wal.close(TIMEOUT).unwrap();
    let (wal, recovered) = Wal::open_on(Arc::new(memory), config).unwrap();
    assert!(recovered.damaged.is_empty() && recovered.damaged_streams().is_empty(), "{recovered:?}");
    assert_eq!(read_all(&wal, 8).unwrap().into_values().collect::<Vec<_>>(), [b"8/2"]);
    assert_eq!(read_all(&wal, 9).unwrap().len(), 3);
}

#[test]
fn free_space_relocates_old_records() {
    let config = WalConfig { kept_bytes_max: 1 << 30, ..config() };
    let (wal, _) = Wal::open_on(Arc::new(MemoryDisk::new()), config).unwrap();
    put(&wal, 9, 1, b"may not be forgotten").unwrap();
    churn(&wal, 2, 300);
    assert!(wal.disk_bytes() > 20 * 4096, "{} bytes", wal.disk_bytes());
    // No further writes or trims.
    wait_for("the log is small", LIMIT, || {
        wal.free_space();
        let bytes = wal.disk_bytes();
        if bytes <= 8 * 4096 { Ok(()) } else { Err(format!("{bytes} bytes")) }
    });
    assert_eq!(read_all(&wal, 9).unwrap()[&1], b"may not be forgotten");
}

#[test]
fn trim_of_other_stream_relocates_old_records() {
    let config = WalConfig { kept_bytes_max: 8 * 4096, ..config() };
    let (wal, _) = Wal::open_on(Arc::new(MemoryDisk::new()), config).unwrap();
    put(&wal, 9, 1, b"may not be forgotten").unwrap();
    (1..=300).for_each(|seq| put(&wal, 1, seq, &[1; 300]).unwrap());
    assert!(wal.disk_bytes() > 20 * 4096, "{} bytes", wal.disk_bytes());
    wal.trim(StreamId(1), 300);
    wait_for("the log is small", LIMIT, || {
        let bytes = wal.disk_bytes();
        if bytes <= (8 + 1 + 4 + 4) * 4096 { Ok(()) } else { Err(format!("{bytes} bytes")) }
    });
    assert_eq!(read_all(&wal, 9).unwrap()[&1], b"may not be forgotten");
}

#[test]
fn full_disk_is_freed_by_relocation() {
    let (_memory, disk, wal) = ready_log();
    put(&wal, 9, 1, b"may not be forgotten").unwrap();
    let next = churn(&wal, 2, 300);
    assert!(wal.disk_bytes() > 20 * 4096, "{} bytes", wal.disk_bytes());
    disk.set_full(true);
    let mut seq = next;
    wait_for("more than all that is made ready is written", LIMIT, || {
        match put(&wal, 1, seq, &[1; 300]) {
            Ok(()) => {
                wal.trim(StreamId(1), seq);
                seq += 1;
            }
            Err(WalError::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if seq >= next + 500 { Ok(()) } else { Err(format!("{} records", seq - next)) }
    });
    assert_eq!(read_all(&wal, 9).unwrap()[&1], b"may not be forgotten");
}

#[test]
fn refused_ordered_batch_blocks_later_ones_of_producer() {
    let (_memory, disk, wal, last) = full_log();
    let ordered = |producer, number, urgent: bool, seq: Option<u64>| {
        let mut batch = WalBatch::new();
        match seq {
            Some(seq) => batch.put(StreamId(1), seq, vec![7; 500].into()),
            None => batch.meta(StreamId(1), 0, vec![number as u8].into()),
        };
        batch.ordered(producer, number);
        if urgent {
            batch.urgent();
        }
        wal.append_wait(batch)
    };
    assert!(matches!(ordered(1, 4, false, Some(last + 1)), Err(WalError::NoSpace { .. })));
    // It would fit into the reserve, and later into the freed space.
    assert!(matches!(ordered(1, 5, true, None), Err(WalError::NoSpace { .. })));
    ordered(2, 5, true, None).unwrap();
    disk.set_full(false);
    wait_for("the log takes writes again", LIMIT, || match wal.read_only() {
        true => Err("still read-only".to_owned()),
        false => Ok(()),
    });
    assert!(matches!(ordered(1, 5, false, None), Err(WalError::NoSpace { .. })));
    ordered(1, 4, false, Some(last + 1)).unwrap();
    ordered(1, 5, false, None).unwrap();
    ordered(1, 6, false, Some(last + 2)).unwrap();
}

/// Otherwise a node without free descriptors stops at the end of its segment, although the next one is open.
#[test]
fn segment_without_second_handle_is_written_by_the_first() {
    let (memory, disk, wal) = ready_log();
    disk.set_unopenable(true);
    // More than fits into the rest of the segment.
    (2..=10).for_each(|seq| put(&wal, 1, seq, &[7; 500]).unwrap());
    disk.set_unopenable(false);
    (11..=30).for_each(|seq| put(&wal, 1, seq, &[7; 500]).unwrap());
    wal.close(TIMEOUT).unwrap();
    let (wal, _) = Wal::open_on(Arc::new(memory), config()).unwrap();
    assert_eq!(read_all(&wal, 1).unwrap().len(), 30);
}
