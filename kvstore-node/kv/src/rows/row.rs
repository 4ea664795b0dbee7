//! Rows of a partition: keys and encoded values.
//!
//! | key | value |
//! |---|---|
//! | `1 ‖ user key` | format 1, revision, value; or format 2, revision, the log time at which it expires, value |
//! | `2 ‖ client` | the client's [`Window`](crate::Window); an entry that changes it is refused |
//! | `3 ‖ 't'` | format, the log time of the last applied effect |
//! | `3 ‖ 'p'` | format, the position up to which there are rows: the node's own, see [`engine_position`](crate::engine_position) |
//! | `3 ‖ 'e'` | empty: a value with an expiry was written to the partition at some time |
//! | `3 ‖ 'f'` | format, the log time up to which clients were forgotten |
//! | `3 ‖ 'm'` | the [`MergeRecord`](crate::MergeRecord) of the last merge in which the partition got keys |
//! | `3 ‖ 'c'` | format, the version of the partition's row under which keys of another partition were last cleared |
//! | `3 ‖ 's'` | the [`Seal`](crate::Seal) on keys that are about to be another partition's |

use crate::engine::Row;
use archon_types::{ClientId, KeyRange, Millis, Revision, Seq, StoredValue, Version};
use bytes::{BufMut, Bytes};
use uuid::Uuid;

/// Kind byte of user values.
pub const KIND_VALUE: u8 = 1;
/// Kind byte of the exactly-once table's rows.
pub const KIND_CLIENT: u8 = 2;
/// Kind byte of a partition's own rows.
pub const KIND_META: u8 = 3;

/// Key of the row that holds the log time of the last applied effect.
pub const LOG_TIME_KEY: &[u8] = &[KIND_META, b't'];
/// Key of the row that notes that the partition has, or had, values with an expiry: others are never scanned for them.
pub const EXPIRING_KEY: &[u8] = &[KIND_META, b'e'];
/// Key of the row that holds `forgotten_through`.
pub const FORGOTTEN_KEY: &[u8] = &[KIND_META, b'f'];
/// Key of the row that holds the [`Seal`](crate::Seal).
pub const SEAL_KEY: &[u8] = &[KIND_META, b's'];

/// Key of the row that holds the [`MergeRecord`](crate::MergeRecord).
pub const MERGED_KEY: &[u8] = &[KIND_META, b'm'];

/// Key of the row that holds the version of the partition's row under which keys of another partition were last
/// cleared.
pub const CLEARED_KEY: &[u8] = &[KIND_META, b'c'];

/// Key of the row that holds the position up to which there are rows.
pub const POSITION_KEY: &[u8] = &[KIND_META, b'p'];

/// Bytes of the key of a client's row.
pub const CLIENT_KEY_BYTES: usize = 17;

/// Bytes of the longest user key that look-ups copy to the stack.
const SHORT_KEY_BYTES: usize = 63;

const FORMAT: u8 = 1;
/// Format of a value with an expiry.
const EXPIRING: u8 = 2;

/// A row that differs from what was written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a {what} row of {bytes} bytes is malformed; the placement is damaged and must be reloaded")]
pub struct RowError {
    /// The kind of row.
    pub what: &'static str,
    /// Its length.
    pub bytes: usize,
}

/// Returns the bounds of user rows with these keys: from the first, up to and not including the second.
pub fn value_bounds(keys: &KeyRange) -> (Bytes, Bytes) {
    let end = keys.end.as_ref().map_or_else(|| Bytes::from_static(&[KIND_VALUE + 1]), |end| value_key(end));
    (value_key(&keys.begin), end)
}

/// Returns the first key after this one.
pub fn just_after(key: &[u8]) -> Bytes {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    Bytes::from(after)
}

/// Returns the row key of a user key.
pub fn value_key(key: &[u8]) -> Bytes {
    let mut row = Vec::with_capacity(1 + key.len());
    row.push(KIND_VALUE);
    row.extend_from_slice(key);
    Bytes::from(row)
}

/// Calls `look_up` with the row key of a user key. The key is built on the stack, unless it is long.
pub fn with_value_key<T>(key: &[u8], look_up: impl FnOnce(&[u8]) -> T) -> T {
    let mut row = [KIND_VALUE; 1 + SHORT_KEY_BYTES];
    match row.get_mut(1..=key.len()) {
        Some(place) => {
            place.copy_from_slice(key);
            look_up(&row[..=key.len()])
        }
        None => look_up(&value_key(key)),
    }
}

/// Encodes a stored value with its revision as a row.
pub fn encode_value(revision: Revision, value: &[u8]) -> Bytes {
    let mut row = Vec::with_capacity(9 + value.len());
    row.push(FORMAT);
    row.put_u64(revision.get());
    row.extend_from_slice(value);
    Bytes::from(row)
}

/// Encodes a stored value that expires at log time `expires`, with its revision, as a row.
pub fn encode_expiring(revision: Revision, expires: Millis, value: &[u8]) -> Bytes {
    let mut row = Vec::with_capacity(17 + value.len());
    row.push(EXPIRING);
    row.put_u64(revision.get());
    row.put_u64(expires.get());
    row.extend_from_slice(value);
    Bytes::from(row)
}

/// Encodes a stored value as a row.
pub fn encode_stored(stored: &StoredValue) -> Bytes {
    match stored.expires {
        None => encode_value(stored.revision, &stored.value),
        Some(expires) => encode_expiring(stored.revision, expires, &stored.value),
    }
}

/// Returns the value and revision in a row, whether it expires or not.
///
/// # Errors
/// As [`decode_stored`].
pub fn decode_value(row: &Bytes) -> Result<(Bytes, Revision), RowError> {
    decode_stored(row).map(|stored| (stored.value, stored.revision))
}

/// Returns the stored value in a row.
///
/// # Errors
/// [`RowError`] for anything that [`encode_stored`] does not write.
pub fn decode_stored(row: &Bytes) -> Result<StoredValue, RowError> {
    let error = RowError { what: "value", bytes: row.len() };
    match row.as_ref() {
        [FORMAT, rest @ ..] => match rest.first_chunk::<8>() {
            Some(revision) => Ok(StoredValue::new(row.slice(9..), Revision::new(u64::from_be_bytes(*revision)))),
            None => Err(error),
        },
        [EXPIRING, rest @ ..] => match rest.first_chunk::<16>() {
            Some(head) => {
                let head = u128::from_be_bytes(*head);
                let (revision, expires) = (Revision::new((head >> 64) as u64), Some(Millis::new(head as u64)));
                Ok(StoredValue { value: row.slice(17..), revision, expires })
            }
            None => Err(error),
        },
        _ => Err(error),
    }
}

/// Returns the revision of the value in a row, whether it expires or not; `None` if the row is malformed.
pub(crate) fn revision_of(row: &[u8]) -> Option<Revision> {
    let (head, rest) = row.split_first_chunk::<9>()?;
    let [format, revision @ ..] = head;
    let is_whole = *format == FORMAT || (*format == EXPIRING && rest.len() >= 8);
    is_whole.then(|| Revision::new(u64::from_be_bytes(*revision)))
}

/// Returns the log time at which the value in a row expires, if it does. Rows that are no values have none.
pub fn expiry_of(row: &[u8]) -> Option<Millis> {
    match row {
        [EXPIRING, rest @ ..] => {
            let time = rest.get(8..16)?.first_chunk::<8>()?;
            Some(Millis::new(u64::from_be_bytes(*time)))
        }
        _ => None,
    }
}

/// Encodes a log time as a row.
pub fn encode_millis(time: Millis) -> Bytes {
    let mut row = Vec::with_capacity(9);
    row.push(FORMAT);
    row.put_u64(time.get());
    Bytes::from(row)
}

/// Encodes the version of a partition's row as a row.
pub fn encode_version(version: Version) -> Bytes {
    encode_millis(Millis::new(version.get()))
}

/// Returns the version in a row.
///
/// # Errors
/// [`RowError`] for anything [`encode_version`] does not write.
pub fn decode_version(row: &[u8]) -> Result<Version, RowError> {
    let decoded = decode_millis(row).map_err(|error| RowError { what: "version", ..error })?;
    Ok(Version::new(decoded.get()))
}

/// Returns the log time in a row.
///
/// # Errors
/// [`RowError`] for anything [`encode_millis`] does not write.
pub fn decode_millis(row: &[u8]) -> Result<Millis, RowError> {
    let error = RowError { what: "log time", bytes: row.len() };
    match row {
        [FORMAT, rest @ ..] => {
            <[u8; 8]>::try_from(rest).map(|time| Millis::new(u64::from_be_bytes(time))).map_err(|_| error)
        }
        _ => Err(error),
    }
}

/// Encodes a position as a row.
pub fn encode_position(position: Seq) -> Bytes {
    encode_millis(Millis::new(position.get()))
}

/// Sets the position row of a copy's last page: any page may hold rows up to the commit position at its read. The
/// source engine's own record is not used, as it may be in the middle of a write.
pub fn note_copied(rows: &mut Vec<Row>, committed: Seq) {
    rows.retain(|row| row.key != POSITION_KEY);
    if committed > Seq::ZERO {
        rows.push(Row { key: Bytes::from_static(POSITION_KEY), value: encode_position(committed) });
    }
}

/// Returns the key of a client's row.
pub fn client_key(client: ClientId) -> Bytes {
    Bytes::copy_from_slice(&client_key_bytes(client))
}

/// Returns [`client_key`] as an array, for lookups.
pub(crate) fn client_key_bytes(client: ClientId) -> [u8; CLIENT_KEY_BYTES] {
    let mut key = [KIND_CLIENT; CLIENT_KEY_BYTES];
    key[1..].copy_from_slice(client.get().as_bytes());
    key
}

/// Returns the client in the key of its row.
///
/// # Errors
/// [`RowError`] if it is no such key.
pub fn decode_client_key(key: &[u8]) -> Result<ClientId, RowError> {
    let client = key.strip_prefix(&[KIND_CLIENT]).and_then(|client| <[u8; 16]>::try_from(client).ok());
    client
        .map(|client| ClientId::new(Uuid::from_bytes(client)))
        .ok_or(RowError { what: "client key", bytes: key.len() })
}

/// Outcome of a write, as far as its answer needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A put, or a compare-and-set that held.
    Written(Revision),
    /// A delete, with whether there was a value.
    Deleted(bool),
    /// A compare-and-set that did not hold, with the revision found.
    ConditionFailed(Revision),
    /// An increment: the sum and its revision.
    Counter(i64, Revision),
    /// An increment of a value that is not a number.
    NotANumber,
    /// A transaction that was carried out: the number of values that its deletes removed, and the revision of those that
    /// it wrote.
    Applied(u32, Revision),
    /// A transaction that was not: the number of the check that did not hold, and the revision found.
    CheckFailed(u32, Revision),
}

impl Outcome {
    /// Writes it: a tag and its fields.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Written(revision) => {
                out.put_u8(1);
                out.put_u64(revision.get());
            }
            Self::Deleted(existed) => {
                out.put_u8(2);
                out.put_u8(u8::from(*existed));
            }
            Self::ConditionFailed(revision) => {
                out.put_u8(3);
                out.put_u64(revision.get());
            }
            Self::Counter(value, revision) => {
                out.put_u8(4);
                out.put_i64(*value);
                out.put_u64(revision.get());
            }
            Self::NotANumber => out.put_u8(5),
            Self::Applied(number, revision) | Self::CheckFailed(number, revision) => {
                out.put_u8(if matches!(self, Self::Applied(..)) { 6 } else { 7 });
                out.put_u32(*number);
                out.put_u64(revision.get());
            }
        }
    }

    /// Returns the bytes that [`Outcome::put`] writes.
    pub(crate) const fn bytes(&self) -> usize {
        match self {
            Self::Written(_) | Self::ConditionFailed(_) => 9,
            Self::Deleted(_) => 2,
            Self::Counter(..) => 17,
            Self::NotANumber => 1,
            Self::Applied(..) | Self::CheckFailed(..) => 13,
        }
    }

    /// Reads one from the beginning of `rest`; `None` for anything that [`Outcome::put`] does not write.
    pub(crate) fn take(rest: &mut &[u8]) -> Option<Self> {
        let number = |rest: &mut &[u8]| {
            let (number, after) = rest.split_first_chunk::<8>()?;
            *rest = after;
            Some(u64::from_be_bytes(*number))
        };
        let count = |rest: &mut &[u8]| {
            let (count, after) = rest.split_first_chunk::<4>()?;
            *rest = after;
            Some(u32::from_be_bytes(*count))
        };
        let (tag, after) = rest.split_first()?;
        *rest = after;
        Some(match tag {
            1 => Self::Written(Revision::new(number(rest)?)),
            2 => {
                let (existed, after) = rest.split_first().filter(|(existed, _)| **existed <= 1)?;
                *rest = after;
                Self::Deleted(*existed == 1)
            }
            3 => Self::ConditionFailed(Revision::new(number(rest)?)),
            4 => Self::Counter(number(rest)?.cast_signed(), Revision::new(number(rest)?)),
            5 => Self::NotANumber,
            6 => Self::Applied(count(rest)?, Revision::new(number(rest)?)),
            7 => Self::CheckFailed(count(rest)?, Revision::new(number(rest)?)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn look_up_key_equals_row_key_at_any_length() {
        for length in [0, 1, SHORT_KEY_BYTES - 1, SHORT_KEY_BYTES, SHORT_KEY_BYTES + 1, 1_024] {
            let key = vec![0xFE; length];
            assert_eq!(with_value_key(&key, <[u8]>::to_vec), value_key(&key), "{length} bytes");
        }
    }

    #[test]
    fn rows_round_trip() {
        let row = encode_value(Revision::new(7), b"value");
        assert_eq!(decode_value(&row).unwrap(), (Bytes::from_static(b"value"), Revision::new(7)));
        for expires in [0, 1, u64::MAX].map(Millis::new) {
            let row = encode_expiring(Revision::new(u64::MAX - 1), expires, b"");
            let stored =
                StoredValue { expires: Some(expires), ..StoredValue::new(Bytes::new(), Revision::new(u64::MAX - 1)) };
            assert_eq!((decode_stored(&row), expiry_of(&row)), (Ok(stored), Some(expires)));
            assert_eq!(decode_value(&row), Ok((Bytes::new(), Revision::new(u64::MAX - 1))));
            assert!((1..row.len()).all(|length| decode_stored(&row.slice(..length)).is_err()));
        }
        assert_eq!(decode_millis(&encode_millis(Millis::new(9))).unwrap(), Millis::new(9));
        let client = ClientId::new(Uuid::from_u128(5));
        assert_eq!(decode_client_key(&client_key(client)).unwrap(), client);
        for outcome in [
            Outcome::Written(Revision::new(u64::MAX)),
            Outcome::Deleted(true),
            Outcome::Deleted(false),
            Outcome::ConditionFailed(Revision::ZERO),
            Outcome::Counter(i64::MIN, Revision::new(3)),
            Outcome::NotANumber,
            Outcome::Applied(u32::MAX, Revision::new(1)),
            Outcome::CheckFailed(0, Revision::ZERO),
        ] {
            let mut written = Vec::new();
            outcome.put(&mut written);
            assert_eq!((Outcome::take(&mut &written[..]), written.len()), (Some(outcome), outcome.bytes()));
        }
    }

    proptest! {
        #[test]
        fn decode_rejects_or_round_trips_any_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..40),
            format in 0..8_u8,
        ) {
            if let Some(first) = bytes.first_mut().filter(|_| format > 0) {
                *first = format;
            }
            let row = Bytes::from(bytes);
            if let Ok(stored) = decode_stored(&row) {
                prop_assert_eq!(encode_stored(&stored), row.clone());
                prop_assert_eq!(expiry_of(&row), stored.expires);
            }
            prop_assert_eq!(revision_of(&row), decode_stored(&row).ok().map(|stored| stored.revision));
            if let Ok(time) = decode_millis(&row) {
                prop_assert_eq!(encode_millis(time), row.clone());
            }
            let mut rest = &row[..];
            if let Some(outcome) = Outcome::take(&mut rest) {
                let mut written = Vec::new();
                outcome.put(&mut written);
                prop_assert_eq!(&written[..], &row[..row.len() - rest.len()]);
            }
            let _ = decode_client_key(&row);
        }
    }
}
