//! Why the log makes no further file ready.

use std::io;

use rustix::io::Errno;

use crate::error::WalError;

/// The log should have another file ready and could not make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// What the system said when it was tried last.
    pub kind: io::ErrorKind,
    /// Bytes that are free on the disk, where that is known.
    pub free_bytes: Option<u64>,
    /// Bytes that the file takes.
    pub needed_bytes: u64,
}

impl Shortage {
    /// Whether it is for lack of space, and not because the system refuses another file for another reason.
    pub fn is_full(&self) -> bool {
        is_full(self.kind)
    }
}

/// Whether an error says that there is no space.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an error says that the disk itself fails.
pub(crate) fn is_broken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// Why a file of so many bytes could not be made.
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
