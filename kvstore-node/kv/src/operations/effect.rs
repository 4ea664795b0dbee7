//! Effect: an entry of a partition's log, with rows to write and no decisions.
//!
//! An effect is a list of rows set or removed, regardless of their previous state, and the record of the operation, which
//! is joined with its client's [`Window`](crate::Window). Applying it twice, or over a newer copy that later effects overwrite
//! anyway, ends in the same state: replay and copies depend on that. The answer is not a part of it; the leader that
//! evaluated the operation keeps it until the entry is committed, and a retry finds the outcome in the window.

mod codec;

use crate::engine::ENGINE_KEY_BYTES_MAX;
use crate::exactly_once::window::Record;
use crate::rows::cleared_ranges::clears;
use crate::rows::row;
use archon_types::limits::{MESSAGE_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ROWS_MAX, VALUE_BYTES_MAX};
use archon_types::transaction::{TRANSACTION_BYTES_MAX, TRANSACTION_KEYS_MAX};
use archon_types::{ClientId, KeyRange, Millis};
use bytes::{Bytes, BytesMut};

/// Formats before 3 had client rows among the changes; format 3 had no values that expire, format 4 no outcomes of
/// transactions.
const FORMAT: u8 = 5;
/// Most changes of an effect, and most clients that it forgets.
pub const EFFECT_CHANGES_MAX: usize = 8_192;
/// Longest encoded effect, in bytes: a message between nodes has room for it and its header fields.
pub const EFFECT_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

// A page of rows fits into one effect, with the lengths of its keys and values.
const _: () = assert!(PAGE_ROWS_MAX <= EFFECT_CHANGES_MAX);
const _: () =
    assert!(PAGE_BYTES_MAX + ENGINE_KEY_BYTES_MAX + 2 * VALUE_BYTES_MAX + 16 * PAGE_ROWS_MAX <= EFFECT_BYTES_MAX);
// So does a transaction: rows that have expired and are removed, one for each check, and those that it writes, with the
// kind byte and lengths of each key and the head and length of each value.
const _: () = assert!(2 * TRANSACTION_KEYS_MAX < EFFECT_CHANGES_MAX);
const _: () = assert!(TRANSACTION_BYTES_MAX + 2 * 32 * TRANSACTION_KEYS_MAX + 1_024 <= EFFECT_BYTES_MAX);

/// Bytes of an entry that one of its rows may keep in memory: a row is charged a quarter of that besides its own bytes.
const SMALL_ENTRY_BYTES: usize = 512;

/// A row set, or removed if `value` is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowChange {
    /// The row's key, kind byte first.
    pub key: Bytes,
    /// Its value, or `None` to remove it.
    pub value: Option<Bytes>,
}

impl RowChange {
    /// Sets a row.
    pub const fn set(key: Bytes, value: Bytes) -> Self {
        Self { key, value: Some(value) }
    }

    /// Removes a row.
    pub const fn remove(key: Bytes) -> Self {
        Self { key, value: None }
    }

    /// Returns the bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }

    /// Copies key and value out of their entry of `entry_bytes`, unless that is small, or they are at least half of it. A
    /// kept row then holds at most about twice its own bytes, which are all that a budget counts of it, or a small entry.
    pub(crate) fn detach(self, entry_bytes: usize) -> Self {
        if self.bytes() * 2 >= entry_bytes || entry_bytes <= SMALL_ENTRY_BYTES {
            return self;
        }
        let key = self.key.len();
        let mut copy = BytesMut::with_capacity(self.bytes());
        copy.extend_from_slice(&self.key);
        copy.extend_from_slice(self.value.as_deref().unwrap_or_default());
        let copy = copy.freeze();
        Self { key: copy.slice(..key), value: self.value.map(|_| copy.slice(key..)) }
    }
}

/// The effect of one operation: blind row changes, and a record to be joined with its client's window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    /// Log time at which the leader created it.
    pub at: Millis,
    /// Range of user keys to remove before the changes are made.
    pub clear: Option<KeyRange>,
    /// Rows to write, in order.
    pub changes: Vec<RowChange>,
    /// Clients that the partition forgets.
    pub forget: Vec<ClientId>,
    /// The operation, if its client may retry it. It applies after the forgetting.
    pub record: Option<Record>,
}

/// Error of bytes that are no effect, or of an effect that cannot be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EffectError {
    /// Written by a newer version.
    #[error("a log entry has format {found}, this version reads {FORMAT}; run the newer version")]
    Format {
        /// The format byte found.
        found: u8,
    },
    /// Written by an earlier version.
    #[error(
        "a log entry has format {found}, this version reads {FORMAT}; run the earlier version, and move the data by a backup (`archon backup create`)"
    )]
    OlderFormat {
        /// The format byte found.
        found: u8,
    },
    /// Changes the row of a client, which follows from records alone.
    #[error("a log entry changes the row of a client, which only records change; the log is damaged")]
    ClientRow,
    /// Ends inside a field.
    #[error("a log entry of {bytes} bytes ends inside its {what}; the log is damaged")]
    Short {
        /// Length of the entry.
        bytes: usize,
        /// The field.
        what: &'static str,
    },
    /// Continues after its end.
    #[error("a log entry of {bytes} bytes has {extra} bytes after its end; the log is damaged")]
    Extra {
        /// Length of the entry.
        bytes: usize,
        /// Number of excess bytes.
        extra: usize,
    },
    /// Encodes a number in more bytes than needed.
    #[error("a log entry has a {what} in more bytes than it takes; the log is damaged")]
    Padded {
        /// The field.
        what: &'static str,
    },
    /// A field exceeds its limit.
    #[error("a log entry has a {what} of {found}, the limit is {limit}")]
    Limit {
        /// The field.
        what: &'static str,
        /// Its actual size.
        found: u64,
        /// Its limit.
        limit: u64,
    },
}

impl Effect {
    /// Creates an effect with these changes and log time.
    pub const fn new(at: Millis, changes: Vec<RowChange>) -> Self {
        Self { at, clear: None, changes, forget: Vec::new(), record: None }
    }

    /// Returns the bytes of keys and values.
    pub fn bytes(&self) -> usize {
        let pair = |first: &Bytes, second: Option<&Bytes>| first.len() + second.map_or(0, Bytes::len);
        let cleared = self.clear.as_ref().map_or(0, |range| pair(&range.begin, range.end.as_ref()));
        cleared + self.changes.iter().map(|change| pair(&change.key, change.value.as_ref())).sum::<usize>()
    }

    /// Returns whether applying it removes the row with this key, unless it also writes that row.
    pub fn clears(&self, key: &[u8]) -> bool {
        self.clear.as_ref().is_some_and(|range| clears(range, key))
    }

    /// Returns the rows it writes after the clearing: its changes and the log-time row.
    pub fn rows(&self) -> impl Iterator<Item = RowChange> + '_ {
        let time = RowChange::set(Bytes::from_static(row::LOG_TIME_KEY), row::encode_millis(self.at));
        self.changes.iter().cloned().chain(std::iter::once(time))
    }
}
