//! Disk: free space, and the time until a write is durable.

use super::file_system::{self, Kind};
use crate::documents::{Finding, FindingCode};
use crate::output::bytes_text;
use archon_types::DiskFull;
use rustix::fs::statvfs;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// With fewer free bytes, a node refuses writes, and a coordinator's log can create only a few more
/// files.
const FREE_BYTES_MIN: u64 = 80 * 1024 * 1024;
/// Same threshold as the alert `ArchonDiskNearlyFull`: free share in percent.
const FREE_PERCENT: u64 = 15;

/// Most measured writes.
const WRITES: usize = 200;
/// Time limit of all writes together, and the minimum number of writes.
const WRITES_TIME: Duration = Duration::from_secs(2);
const WRITES_MIN: usize = 5;
/// Writes of the log are multiples of this size, in bytes.
const BLOCK_BYTES: usize = 4096;
/// Blocks of the file, which are written in turn.
const BLOCKS: usize = 64;

/// Each write waits for a sync at a majority of its copies, and a dependent write waits for it: above this, sequential
/// writes stay below a hundred per second.
const SLOW: Duration = Duration::from_millis(10);
/// Same threshold as the alert `ArchonSlowSyncs`.
const VERY_SLOW: Duration = Duration::from_millis(100);
/// Longest election time-out of coordinators: a vote is synced before it is sent, and an entry before it is
/// acknowledged, so that above this elections fail because of the disk alone.
const TOO_SLOW: Duration = Duration::from_millis(300);
/// Too fast for any disk: the sync returned without effect.
const NOT_SYNCED: Duration = Duration::from_micros(5);

/// Space on a file system, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    free: u64,
    size: u64,
    /// Files that may still be created, where their number is fixed.
    inodes_free: Option<u64>,
}

/// Reads the space from the system.
pub(super) fn read_space(place: &Path) -> io::Result<Space> {
    let found = statvfs(place)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let inodes_free = (found.f_files > 0).then_some(found.f_favail);
    Ok(Space { free: bytes(found.f_bavail), size: bytes(found.f_blocks), inodes_free })
}

/// Judges the space.
pub(super) fn space(about: &str, found: io::Result<Space>) -> Finding {
    const CODE: FindingCode = FindingCode::DiskSpace;
    let Space { free, size, inodes_free } = match found {
        Ok(found) => found,
        Err(error) => return Finding::not_checked(CODE, about, format!("free space of the file system: {error}")),
    };
    let percent = u128::from(free) * 100 / u128::from(size.max(1));
    let message = format!("{} of {} are free ({percent} %)", bytes_text(free), bytes_text(size));
    let remedy = "free space, or enlarge the file system";
    if let Some(inodes) = inodes_free.filter(|inodes| DiskFull::lacks_inodes(*inodes)) {
        let why = format!("{message}, but only {inodes} inodes: writes are refused");
        return Finding::error(CODE, about, why, "remove files, or create the file system again with more inodes");
    }
    match () {
        () if free < FREE_BYTES_MIN => {
            let why = format!("{message}: below {} writes are refused", bytes_text(FREE_BYTES_MIN));
            Finding::error(CODE, about, why, remedy)
        }
        () if percent < FREE_PERCENT.into() => Finding::warning(CODE, about, message, remedy),
        () => Finding::ok(CODE, about, message),
    }
}

/// Measures the time until each of some small writes is durable: overwrites of an existing file, as in the log. The
/// file has no name, so that it is always removed.
pub(super) fn measure(place: &Path) -> io::Result<Vec<Duration>> {
    let file = tempfile::tempfile_in(place)?;
    file.write_all_at(&vec![0; BLOCK_BYTES * BLOCKS], 0)?;
    file.sync_all()?;
    let block = [0xa5; BLOCK_BYTES];
    let begin = Instant::now();
    let mut took = Vec::with_capacity(WRITES);
    while took.len() < WRITES && (took.len() < WRITES_MIN || begin.elapsed() < WRITES_TIME) {
        let offset = (took.len() % BLOCKS * BLOCK_BYTES) as u64;
        took.push(one_write(&file, &block, offset)?);
    }
    Ok(took)
}

fn one_write(file: &File, block: &[u8], offset: u64) -> io::Result<Duration> {
    let begin = Instant::now();
    file.write_all_at(block, offset)?;
    file.sync_data()?;
    Ok(begin.elapsed())
}

/// Judges the durations.
pub(super) fn syncs(about: &str, kind: &file_system::FileSystemState, took: io::Result<Vec<Duration>>) -> Finding {
    const CODE: FindingCode = FindingCode::DiskSync;
    let mut took = match took {
        Ok(took) => took,
        Err(error) => return Finding::not_checked(CODE, about, format!("latency of a sync: {error}")),
    };
    if matches!(kind, file_system::FileSystemState::Known(_, Kind::Memory)) {
        return Finding::not_checked(CODE, about, "latency of a sync: there is no disk");
    }
    took.sort_unstable();
    let (Some(half), Some(most)) = (quantile(&took, 50), quantile(&took, 99)) else {
        return Finding::not_checked(CODE, about, "latency of a sync: nothing was measured");
    };
    let message = format!(
        "{} small durable writes: half within {}, 99 % within {}",
        took.len(),
        time_text(half),
        time_text(most)
    );
    let faster = "use a faster disk (SSD), without other load";
    match () {
        () if most >= TOO_SLOW => {
            let why = format!("{message}: coordinators elect a leader within {}", time_text(TOO_SLOW));
            Finding::error(CODE, about, why, faster)
        }
        () if most >= VERY_SLOW || half >= SLOW => {
            let why = format!("{message}: every write waits for at least one such sync");
            Finding::warning(CODE, about, why, faster)
        }
        () if half < NOT_SYNCED => {
            let why = format!("{message}: too fast for a disk, so a power failure may lose acknowledged writes");
            let remedy = "check whether the file system or the host ignores syncs (`nobarrier`, `eatmydata`, an unsafe \
                          cache)";
            Finding::warning(CODE, about, why, remedy)
        }
        () => Finding::ok(CODE, about, message),
    }
}

/// Returns the lowest value that is not exceeded by `percent` percent of the values.
fn quantile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let place = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(place - 1).copied()
}

/// Formats a duration: `850 µs`, `12.3 ms`.
pub(in crate::doctor) fn time_text(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..1_000 => format!("{micros} µs"),
        micros => format!("{:.1} ms", micros as f64 / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    const EXT4: file_system::FileSystemState = file_system::FileSystemState::Known("ext4", Kind::Disk);

    fn judged(half_us: u64, most_us: u64) -> Finding {
        let mut took = vec![Duration::from_micros(most_us); 3];
        took.extend(vec![Duration::from_micros(half_us); 97]);
        syncs("/data", &EXT4, Ok(took))
    }

    #[test]
    fn disk_is_judged_by_its_effect_on_writes_and_elections() {
        for (half, most, verdict) in [
            (900, 5_000, Verdict::Ok),
            (9_999, 99_999, Verdict::Ok),
            (10_000, 20_000, Verdict::Warning),
            (900, 100_000, Verdict::Warning),
            (900, 300_000, Verdict::Error),
            (2, 9, Verdict::Warning),
        ] {
            let finding = judged(half, most);
            assert_eq!(finding.verdict, verdict, "{half} {most}: {}", finding.message);
        }
        assert!(judged(850, 12_340).message.contains("within 850 µs, 99 % within 12.3 ms"));
        let memory = file_system::FileSystemState::Known("tmpfs", Kind::Memory);
        assert_eq!(syncs("/data", &memory, Ok(vec![Duration::ZERO])).verdict, Verdict::NotChecked);
        assert_eq!(syncs("/data", &EXT4, Ok(Vec::new())).verdict, Verdict::NotChecked);
        assert_eq!(syncs("/data", &EXT4, Err(io::ErrorKind::PermissionDenied.into())).verdict, Verdict::NotChecked);
    }

    #[test]
    fn single_slow_write_among_two_hundred_is_tolerated() {
        let mut took = vec![Duration::from_micros(500); 199];
        took.push(Duration::from_secs(1));
        assert_eq!(syncs("/data", &EXT4, Ok(took)).verdict, Verdict::Ok);
    }

    #[test]
    fn measurement_leaves_no_files() {
        let directory = tempfile::tempdir().unwrap();
        let took = measure(directory.path()).unwrap();
        assert!((WRITES_MIN..=WRITES).contains(&took.len()), "{}", took.len());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(read_space(directory.path()).unwrap().size > 0);
    }

    #[test]
    fn nearly_full_disk_is_reported_before_writes_are_refused() {
        let judged = |free, size| space("/data", Ok(Space { free, size, inodes_free: None })).verdict;
        let no_inodes = space("/data", Ok(Space { free: u64::MAX, size: u64::MAX, inodes_free: Some(0) }));
        assert_eq!(no_inodes.verdict, space("/data", Ok(Space { free: 0, size: 1, inodes_free: None })).verdict);
        assert!(no_inodes.message.contains("only 0 inodes"), "{}", no_inodes.message);
        const GIB: u64 = 1 << 30;
        assert_eq!((judged(20 * GIB, 100 * GIB), judged(14 * GIB, 100 * GIB)), (Verdict::Ok, Verdict::Warning));
        assert_eq!((judged(FREE_BYTES_MIN - 1, GIB), judged(0, 0)), (Verdict::Error, Verdict::Error));
        assert_eq!(space("/data", Err(io::ErrorKind::NotFound.into())).verdict, Verdict::NotChecked);
    }
}
