//! Reasons why the log cannot prepare files.

use std::io;

use rustix::io::Errno;

use crate::error::WalError;

/// The log should have another file ready and could not create it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The system's error of the last attempt.
    pub kind: io::ErrorKind,
    /// Free bytes on the disk, if known.
    pub free_bytes: Option<u64>,
    /// Size of the file in bytes.
    pub needed_bytes: u64,
}

impl Shortage {
    /// Returns whether space is lacking, rather than another resource.
    pub fn is_full(&self) -> bool {
        is_full(self.kind)
    }
}

/// Returns whether an error means lack of space.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns whether an error means that the disk itself fails.
pub(crate) fn is_broken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Returns the error for a file of this size that could not be created.
pub(crate) fn failure(kind: io::ErrorKind, reason: &str, bytes: u64) -> WalError {
    if is_full(kind) {
        return WalError::NoSpace { bytes };
    }
    WalError::Io {
        action: "create a segment in",
        path: "the log directory".to_owned(),
        source: io::Error::new(kind, reason.to_owned()),
    }
}
