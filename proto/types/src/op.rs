//! Operations on keys and their answers.

use crate::error::ErrorDetail;
use crate::ids::{ClientId, Millis, Revision};
use crate::key_range::{KeyRange, ScanOrder};
use crate::limits::{OPERATION_OVERHEAD_BYTES, check_key, check_scan, check_value, scan_bytes_max};
use crate::op_kind::OpKind;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Names one operation of one client for good, so that a retry can be told from a new operation (PROTOCOL rule 24).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpId {
    /// The client instance.
    pub client: ClientId,
    /// The client's number for the operation, from 1.
    pub number: u64,
    /// Everything below this number is done with, as far as the client is concerned.
    pub done_below: u64,
    /// The partition's applied log time that the client last saw; a retry keeps it.
    pub stamp: Millis,
}

/// One operation on one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// Reads a key.
    Get {
        /// The key.
        key: Bytes,
    },
    /// Writes a key.
    Put {
        /// The key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Writes a key if its revision is the expected one ([`Revision::ZERO`]: if it is absent).
    CompareAndSet {
        /// The key.
        key: Bytes,
        /// The revision it must have.
        expected: Revision,
        /// Its new value.
        value: Bytes,
    },
    /// Adds to a decimal integer (an absent key counts as 0).
    Increment {
        /// The key.
        key: Bytes,
        /// What to add; may be negative.
        by: i64,
    },
    /// Lists keys of one partition.
    Scan {
        /// Which keys.
        keys: KeyRange,
        /// In which order.
        order: ScanOrder,
        /// At most this many.
        limit: u32,
    },
}

impl Op {
    /// Whether the operation changes nothing.
    pub const fn is_read(&self) -> bool {
        OpKind::of(self).is_read()
    }

    /// The key it is about; a scan has none.
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::CompareAndSet { key, .. }
            | Self::Increment { key, .. } => Some(key),
            Self::Scan { .. } => None,
        }
    }

    /// Checks the sizes of its key and value, or the limit of a scan, as client and server both do.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument), naming what was found and the limit.
    pub fn check(&self) -> Result<(), ErrorDetail> {
        match self {
            Self::Get { key } | Self::Delete { key } | Self::Increment { key, .. } => check_key(key),
            Self::Put { key, value } | Self::CompareAndSet { key, value, .. } => {
                check_key(key)?;
                check_value(value)
            }
            Self::Scan { keys, limit, .. } => check_scan(keys, *limit),
        }
    }

    /// Bytes that the operation is admitted by: what it brings, what it may read, and some for itself. What a get finds
    /// is known only once it is read.
    pub fn cost(&self) -> usize {
        let read = match self {
            Self::Scan { limit, .. } => scan_bytes_max(*limit),
            _ => 0,
        };
        self.bytes() + read + OPERATION_OVERHEAD_BYTES
    }

    /// Bytes of keys and values, for batch limits.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Get { key } | Self::Delete { key } | Self::Increment { key, .. } => key.len(),
            Self::Put { key, value } | Self::CompareAndSet { key, value, .. } => key.len() + value.len(),
            Self::Scan { keys, .. } => keys.begin.len() + keys.end.as_ref().map_or(0, Bytes::len),
        }
    }
}

/// A stored key with its value and revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The number of this value.
    pub revision: Revision,
}

/// What became of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The answer to a get: the value and its revision, or nothing.
    Value(Option<(Bytes, Revision)>),
    /// The answer to a put, or to a compare-and-set that held.
    Written {
        /// The number of the new value.
        revision: Revision,
    },
    /// The answer to a delete.
    Deleted {
        /// Whether there was something to delete.
        existed: bool,
    },
    /// The answer to a compare-and-set that did not hold.
    ConditionFailed {
        /// The revision found; zero if the key is absent.
        revision: Revision,
    },
    /// The answer to an increment.
    Counter {
        /// The sum.
        value: i64,
        /// The number of the new value.
        revision: Revision,
    },
    /// The answer to an increment of something that is not a decimal integer, or that would overflow.
    NotANumber,
    /// The answer to a scan.
    Page {
        /// What was found, in order.
        entries: Vec<Entry>,
        /// Whether there may be more after the last entry.
        more: bool,
        /// The keys that the partition has, as the copy that answered knows; what was asked for beyond them is elsewhere.
        range: KeyRange,
    },
}
