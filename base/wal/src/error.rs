//! Errors of the log, with remedies.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::batch::{CompletionCallback, StreamId, WalBatch};

/// Reason why the log refused an operation. Nothing was changed unless stated otherwise.
///
/// A failed write or sync of the log, including files made ready, is not an error value: the content of the disk is
/// unknown afterwards, so the process ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// A configured value is out of its range.
    #[error("wal setting {field} is {value}, it must be between {min} and {max}")]
    Config {
        /// Name of the field in `WalConfig`.
        field: &'static str,
        /// The given value.
        value: u64,
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// An operation on the directory or one of its files failed.
    #[error("wal: cannot {action} {path}: check that the disk works and the directory is writable")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory, relative to the log's directory if there is one.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file was written by another version. No file was changed.
    #[error(
        "wal segment {segment:016x} has format {found}, this program reads {supported}: \
         start the version that wrote it, or restore a backup made by this one"
    )]
    OtherFormat {
        /// Generation of the segment.
        segment: u64,
        /// Format found in the file.
        found: u32,
        /// The format this program reads.
        supported: u32,
    },
    /// Stored bytes fail their checksum, and are not the torn end of an interrupted write.
    #[error(
        "wal segment {segment:016x} is damaged at offset {offset}: {what}; \
         rebuild this copy from its peers or restore a backup"
    )]
    Corrupt {
        /// Generation of the segment.
        segment: u64,
        /// Offset in bytes from the start of the segment file.
        offset: u64,
        /// The mismatch.
        what: String,
    },
    /// A put with a number that does not follow the last one of its stream.
    #[error("wal stream {stream}: put {seq} refused, the next number is {expected}{}", if *.or_above { " or above" } else { "" })]
    Sequence {
        /// The stream.
        stream: StreamId,
        /// The given number.
        seq: u64,
        /// The expected number.
        expected: u64,
        /// Set if the stream is empty, so that any number from `expected` on is accepted.
        or_above: bool,
    },
    /// The stream lost records to damage: it can only be read and dropped.
    #[error("wal stream {stream} is damaged: drop the stream and rebuild it from a peer")]
    StreamDamaged {
        /// The stream.
        stream: StreamId,
    },
    /// The first requested record is not stored: trimmed, cut, or not yet durable.
    #[error("wal stream {stream}: record {seq} is not stored, the stream holds {held}")]
    Missing {
        /// The stream.
        stream: StreamId,
        /// The requested number.
        seq: u64,
        /// Description of the stored records.
        held: String,
    },
    /// The disk is full. The batch was not written; reads work, urgent batches still pass.
    #[error(
        "wal: no space for another segment of {bytes} bytes: free space on the disk; the log is read-only until then"
    )]
    NoSpace {
        /// Size of the segment that could not be created.
        bytes: u64,
    },
    /// The batch is too large for an empty queue.
    #[error("wal batch of {bytes} bytes is above the limit of {max}: split it")]
    BatchTooLarge {
        /// Encoded size of the batch.
        bytes: usize,
        /// Largest size accepted.
        max: usize,
    },
    /// A small value of a stream is not small.
    #[error("meta {key} of stream {stream} has {bytes} bytes, the limit is {max}: put it as a record")]
    MetaTooLarge {
        /// The stream.
        stream: StreamId,
        /// Key of the value.
        key: u32,
        /// Bytes of the value.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The queue is full; retry when pending appends have finished.
    #[error("wal queue is full ({bytes} of {max} bytes): try again when appends have finished")]
    QueueFull {
        /// Bytes of queued and unfinished batches.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The log is closed or closing.
    #[error("wal is closed: open it again")]
    Closed,
    /// The log could not be closed in time; its thread may still be writing.
    #[error("wal did not close within {timeout_ms} ms: the disk is stalled, end the process")]
    CloseTimeout {
        /// The time-out, in milliseconds.
        timeout_ms: u64,
    },
}

impl WalError {
    /// Returns true if the same call may succeed later, with an unchanged request.
    pub fn is_retryable(&self) -> bool {
        match self {
            WalError::NoSpace { .. } | WalError::QueueFull { .. } | WalError::Io { .. } => true,
            WalError::Config { .. }
            | WalError::OtherFormat { .. }
            | WalError::Corrupt { .. }
            | WalError::Sequence { .. }
            | WalError::StreamDamaged { .. }
            | WalError::Missing { .. }
            | WalError::BatchTooLarge { .. }
            | WalError::MetaTooLarge { .. }
            | WalError::Closed
            | WalError::CloseTimeout { .. } => false,
        }
    }
}

/// An append that was not queued. It returns the arguments, so that the caller can retry later; `done` was not called
/// and will not be.
pub struct WalFull {
    /// The reason: [`WalError::QueueFull`], [`WalError::BatchTooLarge`] or [`WalError::Closed`].
    pub reason: Box<WalError>,
    /// The unchanged batch.
    pub batch: Arc<WalBatch>,
    /// The callback.
    pub done: CompletionCallback,
}

impl fmt::Debug for WalFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalFull").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl fmt::Display for WalFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for WalFull {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.reason)
    }
}
