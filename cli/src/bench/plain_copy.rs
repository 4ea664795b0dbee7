//! Disk speed without a cluster: `cp` of as many bytes as were moved, in the same run.

use crate::exit::Failure;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Random bytes that the file repeats: longer than the window of any disk compression.
const BLOCK_BYTES: u64 = 8 * 1024 * 1024;

/// Speed of `cp --sparse=never`. The names of these fields are a contract with scripts.
#[derive(Debug, Serialize)]
pub(super) struct PlainCopy {
    megabytes: f64,
    /// Until `cp` ended, with the data in the page cache.
    pub(super) megabytes_per_second: f64,
    /// Until the copy was on disk.
    pub(super) synced_megabytes_per_second: f64,
}

/// Copies a file of `bytes` bytes in a temporary directory on the disk of `beside`. It blocks, for seconds.
///
/// # Errors
/// No space, or a `cp` without `--sparse`.
pub(super) fn plain_copy(beside: &Path, bytes: u64) -> Result<PlainCopy, Failure> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| Failure::failed(format!("cannot {what} for the comparison: {error}"))
    };
    let directory = tempfile::tempdir_in(beside).map_err(failed("make a directory for a file"))?;
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fill(&from, bytes).map_err(failed("write a file"))?;
    let began = Instant::now();
    let status = Command::new("cp").arg("--sparse=never").args([&from, &to]).status().map_err(failed("run cp"))?;
    let copied = began.elapsed();
    if !status.success() {
        return Err(Failure::failed(format!(
            "cp --sparse=never of {bytes} bytes, to compare with, ended with {status}"
        )));
    }
    File::open(&to).and_then(|file| file.sync_all()).map_err(failed("sync a file"))?;
    let synced = began.elapsed();
    let megabytes = bytes as f64 / 1e6;
    Ok(PlainCopy {
        megabytes,
        megabytes_per_second: megabytes / copied.as_secs_f64(),
        synced_megabytes_per_second: megabytes / synced.as_secs_f64(),
    })
}

/// Writes a file, and waits until it is on disk, so that the measurement covers only the copy.
fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES.min(bytes) as usize];
    File::open("/dev/urandom")?.read_exact(&mut block)?;
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len() as u64);
        file.write_all(&block[..part as usize])?;
        left -= part;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_the_requested_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for bytes in [0, 1, BLOCK_BYTES + 1] {
            fill(&path, bytes).unwrap();
            assert_eq!(path.metadata().unwrap().len(), bytes);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn copied_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let plain = plain_copy(directory.path(), 1_000_000).unwrap();
        assert!(plain.megabytes_per_second >= plain.synced_megabytes_per_second, "{plain:?}");
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
