//! Direct writes on a real directory: used if supported, durable, and visible to readers; and the fallback without
//! them.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{put, read_all};
use archon_testkit::skipped;
use archon_wal::disk::{BLOCK_ALIGNMENT, Disk, RealDisk};
use archon_wal::{StreamId, Wal, WalConfig};
use rustix::fs::OFlags;

const TIMEOUT: Duration = Duration::from_secs(60);
const RECORDS: u64 = 200;

/// Segments that end within a block, and are large enough for some rolls.
fn config() -> WalConfig {
    WalConfig { segment_bytes: 70_001, write_bytes_max: 4096, ..WalConfig::default() }
}

fn block_bytes(disk: &RealDisk) -> usize {
    disk.create("probe").unwrap().write_at(0, &[1; 8192]).unwrap();
    let block_bytes = disk.open_durable("probe").unwrap().block_bytes();
    disk.remove("probe").unwrap();
    block_bytes
}

/// Returns true if the log uses direct writes on a file system: on others, such as an overlay, it does not rely on them.
/// This list repeats the log's own on purpose: a test that asked the log would be skipped where the log is wrong.
fn is_relied_on(directory: &Path) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS, as `statfs(2)` numbers them.
    const KNOWN: [u32; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010];
    // The type of the numbers differs between machines; 32 bits are significant.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    rustix::fs::statfs(directory).is_ok_and(|found| KNOWN.contains(&(found.f_type as u32)))
}

/// Tests the file system itself.
fn takes_direct_writes(directory: &Path) -> bool {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let path = directory.join("asked");
    let file = OpenOptions::new().create(true).truncate(false).write(true).custom_flags(flags).open(&path);
    let memory = vec![0; 2 * BLOCK_ALIGNMENT];
    let start = memory.as_ptr().addr().next_multiple_of(BLOCK_ALIGNMENT) - memory.as_ptr().addr();
    file.is_ok_and(|file| file.write_all_at(&memory[start..start + BLOCK_ALIGNMENT], 0).is_ok())
}

fn content(seq: u64) -> Vec<u8> {
    // Some records are too large for a direct write.
    let bytes = if seq.is_multiple_of(7) { 30_000 } else { 100 + (seq as usize * 397) % 9000 };
    vec![seq as u8; bytes]
}

/// Writes, reads each record back at once, and reads all after reopening.
fn write_and_read(directory: &Path, disk: RealDisk) {
    let (wal, _) = Wal::open_on(Arc::new(disk), config()).unwrap();
    for seq in 1..=RECORDS {
        put(&wal, 1, seq, &content(seq)).unwrap();
        let last = wal.read(StreamId(1), seq.saturating_sub(3).max(1), usize::MAX).unwrap();
        assert_eq!(last.last().map(|record| record.data.to_vec()), Some(content(seq)), "record {seq}");
    }
    wal.close(TIMEOUT).unwrap();
    let (wal, recovered) = Wal::open(directory, config()).unwrap();
    assert!(recovered.damaged.is_empty() && recovered.torn_bytes_cut == 0, "{recovered:?}");
    let records = read_all(&wal, 1).unwrap();
    assert!((1..=RECORDS).all(|seq| records[&seq] == content(seq)) && records.len() as u64 == RECORDS);
    wal.close(TIMEOUT).unwrap();
}

#[test]
fn direct_writes_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    write_and_read(directory.path(), RealDisk::open(directory.path()).unwrap());
}

#[test]
fn buffered_writes_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open_buffered(directory.path()).unwrap();
    assert_eq!(block_bytes(&disk), 1);
    write_and_read(directory.path(), disk);
}

#[test]
fn direct_and_buffered_runs_continue_each_other() {
    let directory = tempfile::tempdir().unwrap();
    for life in 0..6 {
        let open = if life % 2 == 0 { RealDisk::open } else { RealDisk::open_buffered };
        let (wal, recovered) = Wal::open_on(Arc::new(open(directory.path()).unwrap()), config()).unwrap();
        assert!(recovered.damaged.is_empty() && recovered.torn_bytes_cut == 0, "{recovered:?}");
        for seq in life * 10 + 1..=life * 10 + 10 {
            put(&wal, 1, seq, &content(seq)).unwrap();
        }
        let records = read_all(&wal, 1).unwrap();
        assert!((1..=life * 10 + 10).all(|seq| records[&seq] == content(seq)), "life {life}");
        wal.close(TIMEOUT).unwrap();
    }
}

/// Not a separate test: the traced process.
#[test]
#[ignore = "started by another test under a tracer"]
fn traced() {
    let Ok(directory) = std::env::var("WAL_TRACED_DIRECTORY") else { return };
    let (wal, _) = Wal::open(directory.as_ref(), WalConfig { segment_bytes: 1 << 20, ..config() }).unwrap();
    (1..=50).for_each(|seq| put(&wal, 1, seq, b"traced").unwrap());
    wal.close(TIMEOUT).unwrap();
}

/// Checks the system calls: a test that reads back cannot tell whether anything was made durable.
#[test]
fn each_append_is_one_durable_direct_write() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !takes_direct_writes(directory.path()) {
        skipped(format_args!("the file system of {} takes no direct writes", directory.path().display()));
        return;
    }
    if !is_relied_on(directory.path()) {
        skipped(format_args!(
            "the log writes to the file system of {} through the page cache",
            directory.path().display()
        ));
        return;
    }
    let block = block_bytes(&RealDisk::open(directory.path()).unwrap());
    assert!(block >= BLOCK_ALIGNMENT && block.is_power_of_two(), "{block}");
    let trace = directory.path().join("trace");
    let status = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=pwritev2,fdatasync,openat", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "direct::traced", "--ignored", "--nocapture"])
        .env("WAL_TRACED_DIRECTORY", directory.path().join("wal"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let text = std::fs::read_to_string(&trace).unwrap_or_default();
    if !status.is_ok_and(|status| status.success()) || text.is_empty() {
        skipped("this machine does not let a test trace a process");
        return;
    }
    let of_a_segment = |line: &&str| line.contains(".seg>") || line.contains(".free>");
    let writes: Vec<_> = text.lines().filter(|line| line.contains("pwritev2(")).filter(of_a_segment).collect();
    assert_eq!(writes.len(), 50, "{text}");
    assert!(writes.iter().all(|line| line.contains("RWF_DSYNC")), "{text}");
    assert!(text.lines().any(|line| line.contains("O_DIRECT,") || line.contains("|O_DIRECT|")), "{text}");
    // First sync of the segment, and syncs of spares and of the note.
    let syncs = text.lines().filter(|line| line.contains("fdatasync(")).count();
    assert!(syncs < 10, "{syncs} syncs: {text}");
}
