//! Room on the disk for the engine. A write that meets a full disk breaks it for good, and with it the node; so the
//! engine is asked for room before it is written to, and a reserve is given up to bring what it has taken to the disk.

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

/// Space held in reserve, enough for everything that the engine may have taken and not yet written.
const RESERVE_BYTES: u64 = 32 * 1024 * 1024;
const RESERVE_FILE: &str = "archon-reserve";

/// The room of one engine's directory.
pub(super) struct Room {
    directory: PathBuf,
    /// With less than this left beside the reserve, in bytes, nothing more is written to the engine.
    free_bytes_min: u64,
    /// The reserve is held.
    held: Mutex<bool>,
}

impl Room {
    /// Takes up the reserve, if there is space for it.
    pub(super) fn new(directory: &Path, free_bytes_min: u64) -> Self {
        let room = Self { directory: directory.to_owned(), free_bytes_min, held: Mutex::new(false) };
        let kept = fs::metadata(room.reserve()).is_ok_and(|reserve| reserve.len() == RESERVE_BYTES);
        *room.held.lock() = kept;
        room
    }

    /// Whether the engine may be written to. If not, the reserve is free now.
    pub(super) fn look(&self) -> bool {
        let Some(free) = self.free() else { return true };
        let mut held = self.held.lock();
        if *held {
            if free >= self.free_bytes_min {
                return true;
            }
            if let Err(error) = fs::remove_file(self.reserve()) {
                tracing::error!(%error, directory = %self.directory.display(), "the disk is full and the engine's reserve cannot be freed");
            }
            *held = false;
            return false;
        }
        if free < self.free_bytes_min + RESERVE_BYTES {
            return false;
        }
        match self.take_reserve() {
            Ok(()) => *held = true,
            // A file system that cannot reserve has room all the same.
            Err(error) => tracing::debug!(%error, "no space is held in reserve for the engine"),
        }
        true
    }

    fn take_reserve(&self) -> std::io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.reserve())?;
        fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).map_err(|errno| {
            // Half a reserve is none.
            let _ = fs::remove_file(self.reserve());
            errno.into()
        })
    }

    /// Bytes that this process may still write, if the system says.
    fn free(&self) -> Option<u64> {
        let found = statvfs(&self.directory).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn reserve(&self) -> PathBuf {
        self.directory.join(RESERVE_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_taken_up_once_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let room = Room::new(directory.path(), RESERVE_BYTES);
        assert!(!*room.held.lock());
        // Whether there is space for it is the machine's affair; what is said must fit what is held.
        let roomy = room.look();
        assert_eq!(roomy, room.look());
        assert!(roomy || !room.reserve().exists());
        assert_eq!(*Room::new(directory.path(), RESERVE_BYTES).held.lock(), room.reserve().exists());
    }
}
