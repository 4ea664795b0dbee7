//! Disk space for the engine. A write that meets a full disk breaks the engine for good, and with it the node; so free
//! space is checked before the engine is written to, and a reserve is released to bring earlier writes to the disk.

use archon_types::{DiskFull, DiskLimit};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, StatVfs, fallocate, statvfs};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Reserved space, enough for everything that the engine may have accepted and not yet written.
pub(crate) const RESERVE_BYTES: u64 = 32 * 1024 * 1024;
const RESERVE_FILE: &str = "archon-reserve";
/// Written and removed to find limits that the system does not report.
const PROBE_FILE: &str = "archon-probe";
const PROBE_BYTES: usize = 1024 * 1024;
/// Space that the file takes up: as much as an engine needs to be opened.
const PROBE_SPACE_BYTES: u64 = RESERVE_BYTES / 2;

/// The disk space of one engine's directory.
pub(super) struct DiskSpace {
    directory: PathBuf,
    /// Free bytes, beside the reserve, below which nothing more is written to the engine.
    free_bytes_min: u64,
    /// The reserve is held.
    held: Mutex<bool>,
}

impl DiskSpace {
    /// Takes up the reserve if it exists.
    pub(super) fn new(directory: &Path, free_bytes_min: u64) -> Self {
        let space = Self { directory: directory.to_owned(), free_bytes_min, held: Mutex::new(false) };
        let kept = fs::metadata(space.reserve()).is_ok_and(|reserve| reserve.len() == RESERVE_BYTES);
        *space.held.lock() = kept;
        space
    }

    /// Checks whether the engine may be written to. If not, the reserve has been released.
    ///
    /// # Errors
    /// [`DiskFull`] with the free space, and the space with which writes resume.
    pub(super) fn look(&self) -> Result<(), DiskFull> {
        let Ok(found) = statvfs(&self.directory) else { return Ok(()) };
        let lacks_inodes = inodes_free(&found).is_some_and(DiskFull::lacks_inodes);
        let needed_bytes = self.needed_bytes();
        let mut held = self.held.lock();
        if *held {
            if available(&found) >= self.free_bytes_min && !lacks_inodes {
                return Ok(());
            }
            self.free_reserve(&mut held);
            return Err(disk_full(&self.directory, needed_bytes));
        }
        if available(&found) < needed_bytes || lacks_inodes {
            return Err(disk_full(&self.directory, needed_bytes));
        }
        match self.take_reserve() {
            Ok(()) => *held = true,
            // There is space, but a limit that the figures do not show.
            Err(error) if is_full(error.kind()) => return Err(disk_full(&self.directory, needed_bytes)),
            // A file system that cannot reserve has space all the same.
            Err(error) => tracing::debug!(%error, "no space is held in reserve for the engine"),
        }
        Ok(())
    }

    /// Releases the reserve and writes a file: after a failed write of the engine, which may have met a limit that the
    /// system does not report.
    ///
    /// # Errors
    /// [`DiskFull`], as [`look`](Self::look).
    pub(super) fn probe(&self) -> Result<(), DiskFull> {
        self.free_reserve(&mut self.held.lock());
        let path = self.directory.join(PROBE_FILE);
        let file = archon_durable::private().write(true).create(true).truncate(true).open(&path);
        let written = file.and_then(|mut file| {
            take_up(&file, PROBE_SPACE_BYTES)?;
            file.write_all(&vec![0; PROBE_BYTES])?;
            file.sync_data()
        });
        // It may not exist.
        let _ = fs::remove_file(&path);
        match written {
            Err(error) if is_full(error.kind()) => Err(disk_full(&self.directory, self.needed_bytes())),
            _ => Ok(()),
        }
    }

    const fn needed_bytes(&self) -> u64 {
        self.free_bytes_min.saturating_add(RESERVE_BYTES)
    }

    fn free_reserve(&self, held: &mut bool) {
        if *held && let Err(error) = fs::remove_file(self.reserve()) {
            tracing::error!(%error, directory = %self.directory.display(), "the disk is full and the engine's reserve cannot be freed");
        }
        *held = false;
    }

    /// Returns whether twice the space with which writes resume is free.
    pub(super) fn has_some_to_spare(&self) -> bool {
        let spare = self.needed_bytes().saturating_mul(2);
        free_bytes(&self.directory).is_none_or(|free| free >= spare)
    }

    fn take_reserve(&self) -> std::io::Result<()> {
        let file = archon_durable::private().write(true).create(true).truncate(false).open(self.reserve())?;
        fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).map_err(|errno| {
            // A partial reserve is useless.
            let _ = fs::remove_file(self.reserve());
            errno.into()
        })
    }

    fn reserve(&self) -> PathBuf {
        self.directory.join(RESERVE_FILE)
    }
}

/// Takes up space for a file, where the file system can do that before anything is written.
fn take_up(file: &fs::File, bytes: u64) -> std::io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes).map_err(std::io::Error::from) {
        Err(error) if is_full(error.kind()) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the bytes that this process may still write to the disk of `directory`, if the system reports them.
pub(super) fn free_bytes(directory: &Path) -> Option<u64> {
    Some(available(&statvfs(directory).ok()?))
}

/// Returns the size of the file system of `directory` in bytes; unlimited if unknown.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    match statvfs(directory) {
        Ok(found) if found.f_blocks > 0 => found.f_blocks.saturating_mul(found.f_frsize),
        _ => u64::MAX,
    }
}

/// Returns the shortage of a disk that refuses `needed_bytes` in `directory`.
pub(crate) fn disk_full(directory: &Path, needed_bytes: u64) -> DiskFull {
    match statvfs(directory) {
        Ok(found) => DiskFull::new(available(&found), needed_bytes, inodes_free(&found)),
        Err(_) => DiskFull { free_bytes: 0, needed_bytes, limit: DiskLimit::Bytes },
    }
}

fn available(found: &StatVfs) -> u64 {
    found.f_bavail.saturating_mul(found.f_frsize)
}

/// Returns the files that may still be created, where their number is fixed.
fn inodes_free(found: &StatVfs) -> Option<u64> {
    (found.f_files > 0).then_some(found.f_favail)
}

/// Returns whether an error means that the disk is full or a quota is reached.
pub(crate) const fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_taken_once_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let space = DiskSpace::new(directory.path(), RESERVE_BYTES);
        assert!(!*space.held.lock());
        // Available space depends on the machine; the result must match the state of the reserve.
        let first = space.look();
        assert_eq!(first, space.look());
        assert!(first.is_ok() || !space.reserve().exists());
        assert_eq!(*DiskSpace::new(directory.path(), RESERVE_BYTES).held.lock(), space.reserve().exists());
    }

    #[test]
    fn full_disk_error_has_figures() {
        let directory = tempfile::tempdir().unwrap();
        let space = DiskSpace::new(directory.path(), u64::MAX / 2);
        let lack = space.look().unwrap_err();
        assert_eq!(lack.needed_bytes, u64::MAX / 2 + RESERVE_BYTES);
        assert!(lack.free_bytes < lack.needed_bytes, "{lack}");
    }
}
