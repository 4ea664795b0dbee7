//! Exclusive lock of a directory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::private;

/// Name of the lock file in the directory.
pub const LOCK_FILE: &str = "LOCK";

/// A directory locked by this process for as long as the value exists.
#[derive(Debug)]
pub struct Lock {
    /// Keeps the lock.
    _file: File,
}

/// Reason why a directory is not locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds the lock; its id if known.
    Held {
        /// Its process id.
        process: Option<u32>,
    },
    /// The operating system refuses, for example on a file system without locks. Without a lock, no process is
    /// excluded.
    Io {
        /// The failed operation.
        action: &'static str,
        /// The error.
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
    /// Locks a directory without waiting, and records this process in the lock file for people.
    ///
    /// # Errors
    /// [`LockError`]; the holder's record is unchanged.
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
                // Only informative: unreadable content is ignored.
                return Err(LockError::Held { process: noted.ok().and_then(|_| process.trim().parse().ok()) });
            }
            Err(errno) => return Err(fail("lock")(errno.into())),
        }
        let noted = file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
        if let Err(error) = noted {
            // For example a full disk: the lock is held nevertheless.
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
    fn second_locker_gets_process_id_of_holder() {
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
