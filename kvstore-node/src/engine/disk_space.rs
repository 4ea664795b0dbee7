//! Space on the disk for the engine. A write that meets a full disk breaks it for good, and with it the node; so the
//! disk is asked for free space before the engine is written to, and a reserve is given up to bring what it has taken to
//! the disk.

use archon_types::DiskFull;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs;
use std::path::{Path, PathBuf};

/// Space held in reserve, enough for everything that the engine may have taken and not yet written.
const RESERVE_BYTES: u64 = 32 * 1024 * 1024;
const RESERVE_FILE: &str = "archon-reserve";

/// The disk space of one engine's directory.
pub(super) struct DiskSpace {
    directory: PathBuf,
    /// With less than this left beside the reserve, in bytes, nothing more is written to the engine.
    free_bytes_min: u64,
    /// The reserve is held.
    held: Mutex<bool>,
}

impl DiskSpace {
    /// Takes up the reserve, if there is space for it.
    pub(super) fn new(directory: &Path, free_bytes_min: u64) -> Self {
        let space = Self { directory: directory.to_owned(), free_bytes_min, held: Mutex::new(false) };
        let kept = fs::metadata(space.reserve()).is_ok_and(|reserve| reserve.len() == RESERVE_BYTES);
        *space.held.lock() = kept;
        space
    }

    /// Looks whether the engine may be written to. If not, the reserve is free now.
    ///
    /// # Errors
    /// [`DiskFull`]: what is free, and with how much the engine is written to again.
    pub(super) fn look(&self) -> Result<(), DiskFull> {
        let Some(free) = free_bytes(&self.directory) else { return Ok(()) };
        let needed_bytes = self.free_bytes_min + RESERVE_BYTES;
        let mut held = self.held.lock();
        if *held {
            if free >= self.free_bytes_min {
                return Ok(());
            }
            if let Err(error) = fs::remove_file(self.reserve()) {
                tracing::error!(%error, directory = %self.directory.display(), "the disk is full and the engine's reserve cannot be freed");
            }
            *held = false;
            return Err(DiskFull { free_bytes: free_bytes(&self.directory).unwrap_or(free), needed_bytes });
        }
        if free < needed_bytes {
            return Err(DiskFull { free_bytes: free, needed_bytes });
        }
        match self.take_reserve() {
            Ok(()) => *held = true,
            // A file system that cannot reserve has space all the same.
            Err(error) => tracing::debug!(%error, "no space is held in reserve for the engine"),
        }
        Ok(())
    }

    /// Whether twice as much is free as what the engine is written to again with.
    pub(super) fn has_some_to_spare(&self) -> bool {
        let spare = self.free_bytes_min.saturating_add(RESERVE_BYTES).saturating_mul(2);
        free_bytes(&self.directory).is_none_or(|free| free >= spare)
    }

    fn take_reserve(&self) -> std::io::Result<()> {
        let file = archon_durable::private().write(true).create(true).truncate(false).open(self.reserve())?;
        fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).map_err(|errno| {
            // Half a reserve is none.
            let _ = fs::remove_file(self.reserve());
            errno.into()
        })
    }

    fn reserve(&self) -> PathBuf {
        self.directory.join(RESERVE_FILE)
    }
}

/// Bytes that this process may still write to the disk of `directory`, if the system says.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_taken_up_once_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let space = DiskSpace::new(directory.path(), RESERVE_BYTES);
        assert!(!*space.held.lock());
        // Whether there is space for it is the machine's affair; what is said must fit what is held.
        let first = space.look();
        assert_eq!(first, space.look());
        assert!(first.is_ok() || !space.reserve().exists());
        assert_eq!(*DiskSpace::new(directory.path(), RESERVE_BYTES).held.lock(), space.reserve().exists());
    }

    #[test]
    fn a_full_disk_was_told_without_figures() {
        let directory = tempfile::tempdir().unwrap();
        let space = DiskSpace::new(directory.path(), u64::MAX / 2);
        let lack = space.look().unwrap_err();
        assert_eq!(lack.needed_bytes, u64::MAX / 2 + RESERVE_BYTES);
        assert!(lack.free_bytes < lack.needed_bytes, "{lack}");
    }
}
