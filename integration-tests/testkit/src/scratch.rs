//! Temporary directories for the data of processes under test.
//!
//! A cluster flushes each change of its state, and each start of a node fills 48 MiB of log with zeros. On the machine's
//! disk, tests wait for it most of the time, and a slow flush costs an election or a lease. In memory a flush takes no
//! time. Tests of flushes, full disks and power failures mount file systems of their own.

use rustix::fs::statvfs;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;
use tempfile::{Builder, TempDir};

/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Free bytes that it must have: clusters that run side by side write about half of it.
const FREE_MIN: u64 = 6 << 30;
/// Beginning of the names of directories.
const PREFIX: &str = "archon-test-";
/// Age from which an unlocked directory was left behind: a new one is locked within moments.
const LEFT_BEHIND_AFTER: Duration = Duration::from_secs(60);

/// A directory that is removed when dropped. If its process is killed, a later test program removes it from memory.
#[derive(Debug)]
pub struct ScratchDirectory {
    directory: TempDir,
    /// Locked as long as the process lives.
    _lock: File,
}

impl ScratchDirectory {
    /// Creates a directory in memory where 6 GiB are free. Else, or if the variable `TMPDIR` is set, it is where the system
    /// keeps temporary files.
    ///
    /// # Errors
    /// If it cannot be created or locked.
    pub fn in_memory() -> io::Result<Self> {
        static CLEANED: Once = Once::new();
        let memory = Path::new(MEMORY);
        CLEANED.call_once(|| remove_left_behind(memory, LEFT_BEHIND_AFTER));
        let chosen = std::env::var_os("TMPDIR");
        match is_in_memory(chosen.as_deref(), free_bytes(memory).unwrap_or(0)) {
            true => Self::create_in(memory),
            false => Self::on_disk(),
        }
    }

    /// Creates a directory where the system keeps temporary files.
    ///
    /// # Errors
    /// If it cannot be created or locked.
    pub fn on_disk() -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir())
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let directory = Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::open(directory.path())?;
        lock.lock()?;
        Ok(Self { directory, _lock: lock })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Returns true if directories belong in memory, of which `free` bytes are available.
fn is_in_memory(chosen: Option<&OsStr>, free: u64) -> bool {
    chosen.is_none_or(OsStr::is_empty) && free >= FREE_MIN
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let found = statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Removes directories of killed test programs. Errors are ignored: another program may remove the same one.
fn remove_left_behind(parent: &Path, age_min: Duration) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|found| found.modified());
        let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= age_min));
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_ours && is_old && File::open(entry.path()).is_ok_and(|directory| directory.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_directory_and_little_memory_keep_data_on_disk() {
        assert!(is_in_memory(None, FREE_MIN) && is_in_memory(Some(OsStr::new("")), FREE_MIN));
        assert!(!is_in_memory(Some(OsStr::new("/data")), FREE_MIN) && !is_in_memory(None, FREE_MIN - 1));
        assert_eq!(free_bytes(Path::new("/missing/directory")), None);
    }

    #[test]
    fn scratch_directory_is_removed_when_dropped() {
        let directory = ScratchDirectory::in_memory().expect("a directory");
        let path = directory.path().to_owned();
        assert!(path.is_dir());
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn only_old_unlocked_directories_are_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let in_use = ScratchDirectory::create_in(parent.path()).expect("a directory");
        let killed = parent.path().join("archon-test-killed");
        let other = parent.path().join("other");
        fs::create_dir_all(killed.join("data")).and_then(|()| fs::create_dir(&other)).expect("directories");
        remove_left_behind(parent.path(), LEFT_BEHIND_AFTER);
        assert!(killed.exists(), "it may be about to be locked");
        remove_left_behind(parent.path(), Duration::ZERO);
        assert!(!killed.exists() && other.exists() && in_use.path().exists());
    }
}
