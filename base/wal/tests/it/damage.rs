//! Decayed bytes, lost sectors and missing files are detected, located, and never served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{BLOCK_BYTES, Numbers, memory_disk, put, read_all};
use archon_wal::disk::{Disk, MemoryDisk};
use archon_wal::{FORMAT, RecoveredLog, StreamId, Wal, WalBatch, WalConfig, WalError};

const TIMEOUT: Duration = Duration::from_secs(60);
/// File with the note of the last durable batch.
const MARK: &str = "durable.mark";

fn config() -> WalConfig {
    WalConfig { segment_bytes: 4096, ..WalConfig::default() }
}

fn open(disk: &MemoryDisk) -> (Wal, RecoveredLog) {
    Wal::open_on(Arc::new(disk.clone()), config()).unwrap()
}

fn segments(disk: &MemoryDisk) -> Vec<String> {
    let files = disk.list().unwrap().into_iter().map(|(name, _)| name);
    files.filter(|name| name.starts_with("wal-")).collect()
}

fn find(disk: &MemoryDisk, needle: &[u8]) -> (String, usize) {
    let found = segments(disk).into_iter().find_map(|name| {
        let bytes = disk.contents(&name)?;
        let at = bytes.windows(needle.len()).position(|window| window == needle)?;
        Some((name, at))
    });
    found.expect("the needle is in the log")
}

#[test]
fn flipped_bit_is_located_and_damages_only_its_stream() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    for seq in 1..=3 {
        put(&wal, 1, seq, format!("first-{seq}").as_bytes()).unwrap();
        put(&wal, 2, seq, format!("second-{seq}").as_bytes()).unwrap();
    }
    wal.close(TIMEOUT).unwrap();
    let (name, at) = find(&disk, b"first-2");
    assert!(disk.decay(&name, at + 3, |byte| byte ^ 4));

    let (wal, recovered) = open(&disk);
    let [damage] = recovered.damaged.as_slice() else { panic!("{:?}", recovered.damaged) };
    // A frame header of 32 bytes and a step header of 36 precede the data.
    assert_eq!((damage.segment, damage.offset), (1, at as u64 - 68));
    assert_eq!((damage.streams.as_slice(), damage.streams_known), (&[StreamId(1)][..], true));
    assert_eq!(recovered.damaged_streams().into_iter().collect::<Vec<_>>(), [StreamId(1)]);
    assert_eq!(read_all(&wal, 2).unwrap().len(), 3);
    assert_eq!(read_all(&wal, 1).unwrap().len(), 1, "what precedes the damage");
    put(&wal, 2, 4, b"goes on").unwrap();
    let refused = put(&wal, 1, 2, b"no").unwrap_err();
    assert!(matches!(refused, WalError::StreamDamaged { stream: StreamId(1) }), "{refused}");
    wal.close(TIMEOUT).unwrap();

    // The stream stays closed until it is dropped; then its number can be reused.
    let (wal, recovered) = open(&disk);
    assert_eq!(recovered.damaged_streams().len(), 1);
    let mut batch = WalBatch::new();
    batch.drop_stream(StreamId(1)).put(StreamId(1), 9, "anew".into());
    wal.append_wait(batch).unwrap();
    wal.close(TIMEOUT).unwrap();
    let (wal, recovered) = open(&disk);
    assert!(recovered.damaged_streams().is_empty(), "{recovered:?}");
    assert_eq!(read_all(&wal, 1).unwrap(), BTreeMap::from([(9, b"anew".to_vec())]));
    assert_eq!(read_all(&wal, 2).unwrap().len(), 4);
}

#[test]
fn refuse_damage_fails_without_changes() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    (1..=3).for_each(|seq| put(&wal, 1, seq, format!("vote-{seq}").as_bytes()).unwrap());
    wal.close(TIMEOUT).unwrap();
    let (name, at) = find(&disk, b"vote-1");
    disk.decay(&name, at, |byte| !byte);
    let operations = disk.operations();
    let config = WalConfig { refuse_damage: true, ..config() };
    match Wal::open_on(Arc::new(disk.clone()), config) {
        Err(WalError::Corrupt { segment: 1, offset, .. }) => assert_eq!(offset, at as u64 - 68),
        other => panic!("{other:?}"),
    }
    assert_eq!(disk.operations(), operations, "nothing was changed");
}

#[test]
fn torn_tail_is_cut_without_damage_report() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    (1..=3).for_each(|seq| put(&wal, 1, seq, format!("entry-{seq}").as_bytes()).unwrap());
    wal.close(TIMEOUT).unwrap();
    let (name, at) = find(&disk, b"entry-3");
    (at..at + 7).for_each(|at| assert!(disk.decay(&name, at, |_| 0)));
    // As after a power failure during that write: no note says that it was durable.
    disk.remove(MARK).unwrap();
    let (wal, recovered) = open(&disk);
    assert!(recovered.damaged.is_empty(), "{recovered:?}");
    assert_eq!(recovered.torn_bytes_cut, 80);
    assert_eq!(wal.bounds(StreamId(1)).unwrap().last, 2);
    put(&wal, 1, 3, b"again").unwrap();
}

#[test]
fn decayed_acknowledged_write_is_reported_not_cut() {
    let places = [(0, true), (7, true), (-36, false), (-68 + 16, false), (-68, false)];
    for ((at, named), block_bytes) in places.into_iter().flat_map(|place| BLOCK_BYTES.map(|bytes| (place, bytes))) {
        let disk = MemoryDisk::with_block_bytes(block_bytes);
        let (wal, _) = open(&disk);
        (1..=3).for_each(|seq| put(&wal, 1, seq, format!("entry-{seq}").as_bytes()).unwrap());
        put(&wal, 2, 1, b"the very last one").unwrap();
        // The process is killed without closing the log.
        let disk = disk.process_end(false);
        drop(wal);
        let (name, found) = find(&disk, b"the very last one");
        assert!(disk.decay(&name, found.checked_add_signed(at).unwrap(), |byte| byte ^ 0x20));
        let (wal, recovered) = open(&disk);
        assert!(!recovered.damaged.is_empty(), "at {at}");
        let damaged = recovered.damaged_streams();
        assert_eq!(damaged.contains(&StreamId(1)), !named, "at {at}: {recovered:?}");
        assert!(damaged.contains(&StreamId(2)) || !recovered.streams.contains_key(&StreamId(2)), "at {at}");
        drop(wal);
        let again = open(&disk).1;
        assert_eq!(again.damaged_streams(), damaged, "at {at}");
    }
}

/// Bytes behind the end, in the block written with it, must not come from an earlier use of the file.
#[test]
fn recycled_segment_ends_at_its_last_write() {
    for block_bytes in BLOCK_BYTES {
        let disk = MemoryDisk::with_block_bytes(block_bytes);
        let (wal, _) = open(&disk);
        for seq in 1..=100 {
            put(&wal, 1, seq, &[7; 300]).unwrap();
            wal.trim(StreamId(1), seq - 1);
        }
        // The process is killed without closing the log.
        let disk = disk.process_end(false);
        drop(wal);
        let name = segments(&disk).pop().unwrap();
        assert!(name.as_str() > "wal-0000000000000008", "{name}: recycled");
        let (wal, recovered) = open(&disk);
        assert!(recovered.damaged.is_empty() && recovered.torn_bytes_cut == 0, "{block_bytes}: {recovered:?}");
        assert_eq!(wal.bounds(StreamId(1)).unwrap().last, 100);
    }
}

/// Only the second block of a two-block write reached the disk: it is cut although whole batches follow, unless a
/// note says that it was durable.
#[test]
fn write_without_first_block_is_torn_unless_noted_durable() {
    for noted in [false, true] {
        let disk = MemoryDisk::with_block_bytes(512);
        let (wal, _) = open(&disk);
        put(&wal, 1, 1, b"kept, in the same block").unwrap();
        let (name, _) = find(&disk, b"kept");
        let before = disk.contents(&name).unwrap();
        let mut batch = WalBatch::new();
        batch.put(StreamId(1), 2, vec![5; 1000].into());
        wal.append_wait(batch).unwrap();
        let disk = disk.process_end(false);
        drop(wal);
        (0..512).for_each(|at| assert!(disk.decay(&name, at, |_| before[at])));
        if !noted {
            disk.remove(MARK).unwrap();
        }
        let (wal, recovered) = open(&disk);
        assert_eq!(!recovered.damaged.is_empty(), noted, "{recovered:?}");
        assert_eq!(read_all(&wal, 1).unwrap(), BTreeMap::from([(1, b"kept, in the same block".to_vec())]));
    }
}

#[test]
fn other_format_is_refused_without_changes() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    put(&wal, 1, 1, b"x").unwrap();
    wal.close(TIMEOUT).unwrap();
    let name = segments(&disk).remove(0);
    disk.decay(&name, 8, |format| format + 1);
    let crc = crc32c::crc32c(&disk.contents(&name).unwrap()[..60]).to_le_bytes();
    (0..4).for_each(|at| assert!(disk.decay(&name, 60 + at, |_| crc[at])));
    let (operations, before) = (disk.operations(), disk.contents(&name));
    match Wal::open_on(Arc::new(disk.clone()), config()) {
        Err(WalError::OtherFormat { segment: 1, found, supported: FORMAT }) => assert_eq!(found, FORMAT + 1),
        other => panic!("{other:?}"),
    }
    assert_eq!((disk.operations(), disk.contents(&name)), (operations, before));
}

/// A log over several segments, with the expected content of each stream after each batch.
struct Sample {
    disk: MemoryDisk,
    after: Vec<BTreeMap<u64, BTreeMap<u64, Vec<u8>>>>,
    metas: BTreeMap<u64, u64>,
}

fn sample(seed: u64) -> Sample {
    let numbers = &mut Numbers::new(seed);
    let disk = memory_disk(seed);
    let (wal, _) = open(&disk);
    let mut now: BTreeMap<u64, BTreeMap<u64, Vec<u8>>> = BTreeMap::new();
    let mut after = vec![now.clone()];
    let mut metas = BTreeMap::new();
    for number in 0..60u64 {
        let mut batch = WalBatch::new();
        for _ in 0..=numbers.below(3) {
            let stream = numbers.below(5);
            let records = now.entry(stream).or_default();
            let last = records.keys().next_back().copied().unwrap_or_default();
            if numbers.below(8) == 0 {
                batch.cut(StreamId(stream), last.saturating_sub(2));
                records.retain(|seq, _| *seq <= last.saturating_sub(2));
            } else {
                let data = vec![number as u8; 10 + numbers.below(120) as usize];
                let seq = last + 1;
                batch.put(StreamId(stream), seq, data.clone().into());
                records.insert(seq, data);
            }
            batch.meta(StreamId(stream), 0, number.to_le_bytes().to_vec().into());
            metas.insert(stream, number);
        }
        wal.append_wait(batch).unwrap();
        after.push(now.clone());
    }
    wal.close(TIMEOUT).unwrap();
    assert!(segments(&disk).len() >= 3, "{:?}", segments(&disk));
    Sample { disk, after, metas }
}

/// Checks that every stream not reported as damaged is whole. Only if nothing whole follows in the newest segment,
/// and there is no note, damage may be read as a torn end: then all streams must have their state after some earlier
/// batch.
fn check(sample: &Sample, disk: &MemoryDisk, newest: bool, what: &str) -> bool {
    let (wal, recovered) = open(disk);
    let damaged = recovered.damaged_streams();
    let unknown = recovered.damaged.iter().any(|damage| !damage.streams_known);
    let last = sample.after.len() - 1;
    let back = if newest && recovered.damaged.is_empty() { last } else { 0 };
    let truths = &sample.after[last - back..];
    let mut right = false;
    let mut differences = Vec::new();
    for truth in truths {
        let differing: Vec<_> = truth
            .iter()
            .filter(|(stream, _)| !damaged.contains(&StreamId(**stream)))
            .filter(|(stream, records)| {
                // A stream without any remains cannot be known to be damaged.
                let there = recovered.streams.contains_key(&StreamId(**stream));
                (there || !unknown) && read_all(&wal, **stream).as_ref() != Ok(*records)
            })
            .map(|(stream, _)| *stream)
            .collect();
        right |= differing.is_empty();
        differences.push(differing);
    }
    assert!(right, "{what}: {differences:?} differ unreported, {:?}", recovered.damaged);
    if back == 0 {
        for (stream, number) in &sample.metas {
            let stream = StreamId(*stream);
            if !damaged.contains(&stream) && (recovered.streams.contains_key(&stream) || !unknown) {
                let found = wal.meta(stream, 0).map(|value| value.to_vec());
                assert_eq!(found, Some(number.to_le_bytes().to_vec()), "{what}: meta of {stream}");
            }
        }
    }
    let told = !recovered.damaged.is_empty();
    wal.close(TIMEOUT).unwrap();

    // The next opening agrees.
    let (wal, again) = open(disk);
    assert_eq!(again.damaged_streams(), damaged, "{what}: {:?}", again.damaged);
    wal.close(TIMEOUT).unwrap();
    told
}

#[test]
fn any_flipped_byte_is_reported_or_harmless() {
    let mut told = 0;
    for seed in 1..=3 {
        let sample = sample(seed);
        let names = segments(&sample.disk);
        for (at, name) in names.iter().enumerate() {
            let mut numbers = Numbers::new(seed);
            let end = sample.disk.contents(name).unwrap().len();
            let mut offset = 0;
            while offset < end {
                let disk = sample.disk.copy();
                disk.decay(name, offset, |byte| byte ^ (1 << numbers.below(8)));
                for noted in [true, false] {
                    // Without the note, damage of the last write looks like a torn write.
                    let disk = disk.copy();
                    if !noted {
                        disk.remove(MARK).unwrap();
                    }
                    let newest = !noted && at + 1 == names.len();
                    let what = format!("seed {seed}, {name} byte {offset}, noted {noted}");
                    told += u32::from(check(&sample, &disk, newest, &what));
                }
                offset += 1 + numbers.below(40) as usize;
            }
        }
    }
    assert!(told > 250, "only {told} flips were reported");
}

#[test]
fn lost_sector_is_reported_or_harmless() {
    for seed in 4..=8 {
        let sample = sample(seed);
        let names = segments(&sample.disk);
        for (at, name) in names.iter().enumerate() {
            for sector in 0..sample.disk.contents(name).unwrap().len() / 512 {
                let disk = sample.disk.copy();
                (0..512).for_each(|byte| assert!(disk.decay(name, sector * 512 + byte, |_| 0)));
                check(&sample, &disk, false, &format!("seed {seed}, {name} sector {sector}"));
                disk.remove(MARK).unwrap();
                let newest = at + 1 == names.len();
                check(&sample, &disk, newest, &format!("seed {seed}, {name} sector {sector}, not noted"));
            }
        }
    }
}

#[test]
fn missing_segment_is_reported() {
    for seed in 10..=13 {
        let sample = sample(seed);
        let names = segments(&sample.disk);
        for name in &names {
            let disk = sample.disk.copy();
            disk.remove(name).unwrap();
            check(&sample, &disk, false, &format!("seed {seed} without {name}"));
        }
    }
}

#[test]
fn record_decayed_under_open_log_is_not_served() {
    let disk = MemoryDisk::new();
    let (wal, _) = open(&disk);
    (1..=2).for_each(|seq| put(&wal, 1, seq, format!("entry-{seq}").as_bytes()).unwrap());
    let (name, at) = find(&disk, b"entry-2");
    disk.decay(&name, at, |byte| !byte);
    match wal.read(StreamId(1), 2, 100) {
        Err(WalError::Corrupt { segment: 1, offset, .. }) => assert_eq!(offset, at as u64 - 36),
        other => panic!("{other:?}"),
    }
    assert_eq!(wal.read(StreamId(1), 1, 1).unwrap().len(), 1);
}
