//! Lock of the data directory, read from the kernel's list of locks: an attempt to lock it could keep out a member that
//! is just starting.

use crate::documents::{Finding, FindingCode};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// File in a data directory that its user locks, and that contains its process id.
const LOCK_FILE: &str = "LOCK";
/// List of locks of the kernel.
const LOCKS: &str = "/proc/locks";

/// State of the lock.
#[derive(Debug)]
pub(super) enum LockState {
    /// Never locked: the file does not exist.
    Never,
    /// Not locked.
    Free,
    /// Locked by the process with this id.
    Held(u32),
    /// Unknown, with the reason.
    Unknown(io::Error),
}

/// Reads the locks of this machine.
pub(super) fn read(directory: &Path) -> LockState {
    let file = directory.join(LOCK_FILE);
    let inode = match file.metadata() {
        Ok(found) => found.ino(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return LockState::Never,
        Err(error) => return LockState::Unknown(error),
    };
    let noted = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    match std::fs::read_to_string(LOCKS) {
        Ok(locks) => holder(&locks, inode, noted).map_or(LockState::Free, LockState::Held),
        Err(error) => LockState::Unknown(error),
    }
}

/// Returns the process that holds a lock on this file, from `/proc/locks`: `1: FLOCK ADVISORY WRITE 4711 08:01:262146 0
/// EOF`. Devices are not compared, because some file systems have several numbers for one; instead the process must be
/// the `noted` one.
fn holder(locks: &str, inode: u64, noted: Option<u32>) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, _, _, process, file) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
        let (process, of): (u32, u64) = (process.parse().ok()?, file.rsplit(':').next()?.parse().ok()?);
        (kind == "FLOCK" && of == inode && noted.is_none_or(|noted| noted == process)).then_some(process)
    })
}

/// Judges the lock: a directory in use is normal while its member runs.
pub(super) fn judge(about: &str, reading: LockState) -> Finding {
    const CODE: FindingCode = FindingCode::DirectoryLock;
    match reading {
        LockState::Never => Finding::ok(CODE, about, "unused so far"),
        LockState::Free => Finding::ok(CODE, about, "no process of this machine uses it"),
        LockState::Held(process) => {
            Finding::ok(CODE, about, format!("process {process} uses it: a second process would be refused"))
        }
        LockState::Unknown(error) => Finding::not_checked(CODE, about, format!("process that uses it: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_found_among_other_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 00:2d:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 00:2d:77 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 08:01:78 0 EOF\n";
        assert_eq!(holder(locks, 77, Some(12)), Some(12));
        assert_eq!(holder(locks, 77, None), Some(12));
        assert_eq!(holder(locks, 77, Some(99)), None, "another file of the same number, on another device");
        assert_eq!(holder(locks, 79, None), None);
        assert_eq!(holder("nonsense\n\n1: FLOCK", 77, None), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn held_lock_is_reported_without_touching_it() {
        use rustix::fs::{FlockOperation, flock};
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(read(directory.path()), LockState::Never));
        let path = directory.path().join(LOCK_FILE);
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert!(matches!(read(directory.path()), LockState::Free));
        let file = std::fs::File::open(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let seen = read(directory.path());
        assert!(matches!(seen, LockState::Held(process) if process == std::process::id()), "{seen:?}");
    }
}
