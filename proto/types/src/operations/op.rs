//! Operations on keys and their results.

use crate::common::limits::{
    OPERATION_OVERHEAD_BYTES, check_expiry, check_key, check_scan, check_value, scan_bytes_max,
};
use crate::error::ErrorDetail;
use crate::ids::{ClientId, Millis, Revision};
use crate::operations::expiry::Expiry;
use crate::operations::op_kind::OpKind;
use crate::operations::transaction::{ManyKeys, Transaction};
use crate::tables::key_range::{KeyRange, ScanOrder};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Permanent identity of one operation of one client, which distinguishes a retry from a new operation (PROTOCOL rule
/// 24).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpId {
    /// The client instance.
    pub client: ClientId,
    /// Number of the operation at the client, from 1.
    pub number: u64,
    /// The client is done with all operations below this number.
    pub done_below: u64,
    /// Applied log time of the partition that the client last saw; a retry keeps it.
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
        /// New value.
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
        /// Required revision.
        expected: Revision,
        /// New value.
        value: Bytes,
    },
    /// Writes a key with an expiry, possibly on the condition of a compare-and-set. [`Self::Put`] and
    /// [`Self::CompareAndSet`] remove an expiry.
    PutExpiring {
        /// The key.
        key: Bytes,
        /// New value.
        value: Bytes,
        /// Required revision, as of a compare-and-set.
        expected: Option<Revision>,
        /// Expiry of the new value.
        expiry: Expiry,
    },
    /// Adds to a decimal integer (an absent key counts as 0). An expiry stays.
    Increment {
        /// The key.
        key: Bytes,
        /// Amount to add; may be negative.
        by: i64,
    },
    /// Lists keys of one partition.
    Scan {
        /// Range of keys.
        keys: KeyRange,
        /// Order of keys.
        order: ScanOrder,
        /// Maximum number of entries.
        limit: u32,
    },
    /// Reads several keys of one partition as of one moment.
    GetMany(Box<ManyKeys>),
    /// Writes several keys of one partition in one entry of its log, all or none.
    Transaction(Box<Transaction>),
}

impl Op {
    /// Returns the write of a value, on the condition of a revision ([`Revision::ZERO`]: the key is absent) and with an
    /// expiry, if given.
    pub const fn write(key: Bytes, value: Bytes, expected: Option<Revision>, expiry: Option<Expiry>) -> Self {
        match (expiry, expected) {
            (None, None) => Self::Put { key, value },
            (None, Some(expected)) => Self::CompareAndSet { key, expected, value },
            (Some(expiry), expected) => Self::PutExpiring { key, value, expected, expiry },
        }
    }

    /// Returns true if the operation changes nothing.
    pub const fn is_read(&self) -> bool {
        OpKind::of(self).is_read()
    }

    /// Returns the key of the operation, the first one if it has several; a scan has none.
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::Delete { key }
            | Self::CompareAndSet { key, .. }
            | Self::PutExpiring { key, .. }
            | Self::Increment { key, .. } => Some(key),
            Self::Scan { .. } => None,
            Self::GetMany(many) => many.keys().first(),
            Self::Transaction(transaction) => transaction.keys().next(),
        }
    }

    /// Returns whether this holds for any key of the operation. All of them must be in one partition.
    pub fn any_key(&self, mut holds: impl FnMut(&Bytes) -> bool) -> bool {
        match self {
            Self::GetMany(many) => many.keys().iter().any(holds),
            Self::Transaction(transaction) => transaction.keys().any(holds),
            op => op.key().is_some_and(&mut holds),
        }
    }

    /// Checks the sizes of its key and value, or the limit of a scan; client and server both do.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument), naming the value found and the limit.
    pub fn check(&self) -> Result<(), ErrorDetail> {
        match self {
            Self::Get { key } | Self::Delete { key } | Self::Increment { key, .. } => check_key(key),
            Self::Put { key, value } | Self::CompareAndSet { key, value, .. } => {
                check_key(key)?;
                check_value(value)
            }
            Self::PutExpiring { key, value, expiry, .. } => {
                check_key(key)?;
                check_value(value)?;
                check_expiry(*expiry)
            }
            Self::Scan { keys, limit, .. } => check_scan(keys, *limit),
            // They cannot be made without.
            Self::GetMany(_) | Self::Transaction(_) => Ok(()),
        }
    }

    /// Returns the admission cost in bytes: its content, the bytes that it may read, and a fixed overhead per key. The result
    /// size of a get is only known once it is read.
    pub fn cost(&self) -> usize {
        let more = match self {
            Self::Scan { limit, .. } => scan_bytes_max(*limit),
            Self::GetMany(many) => many.overhead(),
            Self::Transaction(transaction) => transaction.overhead(),
            _ => 0,
        };
        self.bytes() + more + OPERATION_OVERHEAD_BYTES
    }

    /// Returns the bytes of keys and values, for batch limits.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Get { key } | Self::Delete { key } | Self::Increment { key, .. } => key.len(),
            Self::Put { key, value }
            | Self::CompareAndSet { key, value, .. }
            | Self::PutExpiring { key, value, .. } => key.len() + value.len(),
            Self::Scan { keys, .. } => keys.begin.len() + keys.end.as_ref().map_or(0, Bytes::len),
            Self::GetMany(many) => many.bytes(),
            Self::Transaction(transaction) => transaction.bytes(),
        }
    }
}

/// A stored value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredValue {
    /// The value.
    pub value: Bytes,
    /// Its revision.
    pub revision: Revision,
    /// Log time at which it expires, if it does.
    pub expires: Option<Millis>,
}

impl StoredValue {
    /// Creates a value without an expiry.
    pub const fn new(value: Bytes, revision: Revision) -> Self {
        Self { value, revision, expires: None }
    }
}

/// A stored key with its value and revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// Revision of this value.
    pub revision: Revision,
    /// Log time at which it expires, if it does.
    pub expires: Option<Millis>,
}

impl Entry {
    /// Returns the value without its key.
    pub fn stored(&self) -> StoredValue {
        StoredValue { value: self.value.clone(), revision: self.revision, expires: self.expires }
    }
}

/// Result of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Result of a get: the value, or nothing.
    Value(Option<StoredValue>),
    /// Result of a put, or of a compare-and-set whose condition held.
    Written {
        /// Revision of the new value.
        revision: Revision,
    },
    /// Result of a delete.
    Deleted {
        /// True if the key existed.
        existed: bool,
    },
    /// Result of a compare-and-set whose condition did not hold.
    ConditionFailed {
        /// The revision found; zero if the key is absent.
        revision: Revision,
    },
    /// Result of an increment.
    Counter {
        /// Sum.
        value: i64,
        /// Revision of the new value.
        revision: Revision,
    },
    /// Result of an increment of a value that is not a decimal integer, or that would overflow.
    NotANumber,
    /// Result of a scan.
    Page {
        /// Entries found, in order.
        entries: Vec<Entry>,
        /// True if more entries may follow the last one. Without entries, the scan goes on beyond `range`.
        more: bool,
        /// Key range of the partition, as the answering copy knows it; requested keys beyond it are elsewhere. If a scan
        /// met so many expired values that it stopped before any entry, the part of it that was read.
        range: KeyRange,
    },
    /// Result of a read of several keys: the value of each, or nothing.
    Values(Vec<Option<StoredValue>>),
    /// Result of a transaction that was carried out.
    Applied {
        /// Revision of the values that it wrote.
        revision: Revision,
        /// Number of its deletes that removed a value.
        removed: u32,
    },
    /// Result of a transaction that changed nothing, as a check did not hold.
    CheckFailed {
        /// Number of the first such check, from 0.
        check: u32,
        /// The revision found; zero if the key is absent.
        revision: Revision,
    },
}
