//! One process per directory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::private;

/// The file in the directory that is locked.
pub const LOCK_FILE: &str = "LOCK";

/// A directory that belongs to this process as long as the value lives.
#[derive(Debug)]
pub struct Lock {
    /// Held for its lock.
    _file: File,
}

/// Why a directory could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it; which one, if it said so.
    Held {
        /// Its process id.
        process: Option<u32>,
    },
    /// The operating system refused: a file system without locks, for one. Nobody would be kept out.
    Io {
        /// What was tried.
        action: &'static str,
        /// The refusal.
        source: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { process: Some(process) } => write!(f, "in use by process {process}"),
            LockError::Held { process: None } => write!(f, "in use by another process"),
            LockError::Io { action, source } => write!(f, "cannot {action} the file {LOCK_FILE}: {source}"),
        }
    }
}

impl std::error::Error for LockError {}

impl Lock {
    /// Locks a directory without waiting, and notes for people which process has it.
    ///
    /// # Errors
    /// [`LockError`]; what the holder noted is untouched.
    pub fn take(directory: &Path) -> Result<Lock, LockError> {
        let fail = |action| move |source| LockError::Io { action, source };
        let mut options = private();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(directory.join(LOCK_FILE)).map_err(fail("open"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut process = String::new();
                let noted = (&mut file).take(20).read_to_string(&mut process);
                // It only helps people: anything unreadable is left out.
                return Err(LockError::Held { process: noted.ok().and_then(|_| process.trim().parse().ok()) });
            }
            Err(errno) => return Err(fail("lock")(errno.into())),
        }
        let noted = file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
        if let Err(error) = noted {
            // A full disk, for one: the lock holds all the same.
            tracing::debug!(%error, "the lock file does not name this process");
        }
        Ok(Lock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let directory = tempfile::tempdir().unwrap();
        let first = Lock::take(directory.path()).unwrap();
        let process = std::process::id();
        for _ in 0..2 {
            let refused = Lock::take(directory.path()).unwrap_err();
            assert!(matches!(refused, LockError::Held { process: Some(held) } if held == process), "{refused}");
        }
        drop(first);
        Lock::take(directory.path()).unwrap();
    }
}
