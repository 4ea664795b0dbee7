//! Cost of the disk itself: repeated writes of 4 KiB with sync.

use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 4_096;
/// The file is written once before, so that a sync changes no metadata, as in a good log.
const BLOCKS: u64 = 4_096;

/// Times of a write of 4 KiB with `fdatasync`, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Syncs {
    /// Median.
    pub(crate) p50_us: f64,
    /// 99th percentile.
    pub(crate) p99_us: f64,
}

/// Writes and syncs for `length`, at least once.
pub(crate) fn probe(directory: &Path, length: Duration) -> anyhow::Result<Syncs> {
    let path = directory.join("probe");
    let file = File::options().create(true).truncate(true).write(true).open(&path)?;
    let block = [0x5a; BLOCK_BYTES];
    for number in 0..BLOCKS {
        file.write_all_at(&block, number * BLOCK_BYTES as u64)?;
    }
    file.sync_all()?;
    let (mut took, mut number, began) = (Vec::new(), 0, Instant::now());
    while took.is_empty() || began.elapsed() < length {
        let started = Instant::now();
        file.write_all_at(&block, number % BLOCKS * BLOCK_BYTES as u64)?;
        file.sync_data()?;
        took.push(started.elapsed().as_secs_f64() * 1e6);
        number += 1;
    }
    drop(file);
    std::fs::remove_file(path)?;
    took.sort_by(f64::total_cmp);
    let percentile = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    Ok(Syncs { p50_us: percentile(0.5), p99_us: percentile(0.99) })
}
