//! Rows of a partition: keys and encoded values.
//!
//! | key | value |
//! |---|---|
//! | `1 ‖ user key` | format, revision, value |
//! | `2 ‖ client` | format, the client's [`ClientHead`] |
//! | `2 ‖ client ‖ number` | format, the [`Outcome`] of that operation |
//! | `3 ‖ 't'` | format, the log time of the last applied effect |
//! | `3 ‖ 'p'` | format, the position up to which there are rows: the node's own, see [`engine_position`] |
//! | `3 ‖ 'f'` | format, the log time up to which clients were forgotten |
//! | `3 ‖ 'm'` | the [`Merged`](crate::Merged) of the last merge in which the partition got keys |
//! | `3 ‖ 'c'` | format, the version of the partition's row under which keys of another partition were last cleared |
//! | `3 ‖ 's'` | the [`Seal`](crate::Seal) on keys that are about to be another partition's |

use super::view::ViewError;
use crate::engine::{Engine, Row};
use archon_types::{ClientId, KeyRange, Millis, PlacementId, Revision, Seq, Version};
use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

/// Kind byte of user values.
pub const KIND_VALUE: u8 = 1;
/// Kind byte of the exactly-once table's rows.
pub const KIND_CLIENT: u8 = 2;
/// Kind byte of a partition's own rows.
pub const KIND_META: u8 = 3;

/// Key of the row that holds the log time of the last applied effect.
pub const LOG_TIME_KEY: &[u8] = &[KIND_META, b't'];
/// Key of the row that holds `forgotten_through`.
pub const FORGOTTEN_KEY: &[u8] = &[KIND_META, b'f'];
/// Key of the row that holds the [`Seal`](crate::Seal).
pub const SEAL_KEY: &[u8] = &[KIND_META, b's'];

/// Key of the row that holds the [`Merged`](crate::Merged).
pub const MERGED_KEY: &[u8] = &[KIND_META, b'm'];

/// Key of the row that holds the version of the partition's row under which keys of another partition were last
/// cleared.
pub const CLEARED_KEY: &[u8] = &[KIND_META, b'c'];

/// Key of the row that holds the position up to which there are rows.
pub const POSITION_KEY: &[u8] = &[KIND_META, b'p'];

/// Bytes of the key of a client's head row.
pub const CLIENT_HEAD_KEY_BYTES: usize = 17;
/// Bytes of the key of a client's outcome row.
pub const CLIENT_OUTCOME_KEY_BYTES: usize = 25;

const FORMAT: u8 = 1;

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
    let mut after = BytesMut::with_capacity(key.len() + 1);
    after.put_slice(key);
    after.put_u8(0);
    after.freeze()
}

/// Returns the row key of a user key.
pub fn value_key(key: &[u8]) -> Bytes {
    let mut row = BytesMut::with_capacity(1 + key.len());
    row.put_u8(KIND_VALUE);
    row.put_slice(key);
    row.freeze()
}

/// Encodes a stored value with its revision as a row.
pub fn encode_value(revision: Revision, value: &[u8]) -> Bytes {
    let mut row = BytesMut::with_capacity(9 + value.len());
    row.put_u8(FORMAT);
    row.put_u64(revision.get());
    row.put_slice(value);
    row.freeze()
}

/// Returns the value and revision in a row.
///
/// # Errors
/// [`RowError`] for anything [`encode_value`] does not write.
pub fn decode_value(row: &Bytes) -> Result<(Bytes, Revision), RowError> {
    match row.as_ref() {
        [FORMAT, rest @ ..] => match rest.first_chunk::<8>() {
            Some(revision) => Ok((row.slice(9..), Revision::new(u64::from_be_bytes(*revision)))),
            None => Err(RowError { what: "value", bytes: row.len() }),
        },
        _ => Err(RowError { what: "value", bytes: row.len() }),
    }
}

/// Encodes a log time as a row.
pub fn encode_millis(time: Millis) -> Bytes {
    let mut row = BytesMut::with_capacity(9);
    row.put_u8(FORMAT);
    row.put_u64(time.get());
    row.freeze()
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

/// Returns the position up to which `space` holds rows, by the engine's own record: written with the rows of each
/// memtable, and copied with those of a copy; `None` if it holds no entry's rows.
///
/// It may be ahead of the log's complete position, never behind: an engine that returns a lower one after a restart has
/// lost rows that it had synced, and its placement is damaged. It is ahead of the log's end only while a copy catches
/// up with the rows of its pages: until then the rows match no single position.
///
/// # Errors
/// [`ViewError`] if the row cannot be read.
pub fn engine_position(engine: &dyn Engine, space: PlacementId) -> Result<Option<Seq>, ViewError> {
    let row = engine.get(space, POSITION_KEY)?;
    Ok(row.map(|row| decode_millis(&row)).transpose()?.map(|position| Seq::new(position.get())))
}

/// Sets the position row of a copy's last page: any page may hold rows up to the commit position at its read. The
/// source engine's own record is not used, as it may be in the middle of a write.
pub fn note_copied(rows: &mut Vec<Row>, committed: Seq) {
    rows.retain(|row| row.key != POSITION_KEY);
    if committed > Seq::ZERO {
        rows.push(Row { key: Bytes::from_static(POSITION_KEY), value: encode_position(committed) });
    }
}

/// Returns the key of a client's head row.
pub fn client_head_key(client: ClientId) -> Bytes {
    Bytes::copy_from_slice(&client_head_bytes(client))
}

/// Returns [`client_head_key`] as an array, for lookups.
pub(crate) fn client_head_bytes(client: ClientId) -> [u8; CLIENT_HEAD_KEY_BYTES] {
    let mut key = [KIND_CLIENT; CLIENT_HEAD_KEY_BYTES];
    key[1..].copy_from_slice(client.get().as_bytes());
    key
}

/// Returns the key of the row that holds the outcome of a client's operation.
pub fn client_outcome_key(client: ClientId, number: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(CLIENT_OUTCOME_KEY_BYTES);
    key.put_u8(KIND_CLIENT);
    key.put_slice(client.get().as_bytes());
    key.put_u64(number);
    key.freeze()
}

/// Returns whether a row holds the outcome of one operation.
pub fn is_outcome_key(key: &[u8]) -> bool {
    key.len() == CLIENT_OUTCOME_KEY_BYTES && key[0] == KIND_CLIENT
}

/// Returns the client in the key of one of its rows, with the operation's number if it is an outcome row.
///
/// # Errors
/// [`RowError`] if it is no such key.
pub fn decode_client_key(key: &[u8]) -> Result<(ClientId, Option<u64>), RowError> {
    let error = RowError { what: "client key", bytes: key.len() };
    let [KIND_CLIENT, rest @ ..] = key else { return Err(error) };
    let Some((client, number)) = rest.split_first_chunk::<16>() else { return Err(error) };
    let client = ClientId::new(Uuid::from_bytes(*client));
    match number {
        [] => Ok((client, None)),
        number => match <[u8; 8]>::try_from(number) {
            Ok(number) => Ok((client, Some(u64::from_be_bytes(number)))),
            Err(_) => Err(error),
        },
    }
}

/// A partition's record of a client as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientHead {
    /// Log time at which this record was begun. An operation stamped at or after it would be recorded if it had been
    /// applied, since the record has been kept ever since.
    pub created: Millis,
    /// Log time of the last operation recorded.
    pub last: Millis,
    /// The client has confirmed every operation below this number.
    pub done_below: u64,
    /// The highest operation recorded: nothing above it has an outcome row.
    pub highest: u64,
    /// Below this number every outcome row was removed.
    pub removed_below: u64,
    /// Outcome rows stored, those below `done_below` that were not yet removed included.
    pub outcomes: u32,
}

impl ClientHead {
    const BYTES: usize = 44;

    /// Encodes it as a row.
    pub fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(1 + Self::BYTES);
        row.put_u8(FORMAT);
        row.put_u64(self.created.get());
        row.put_u64(self.last.get());
        row.put_u64(self.done_below);
        row.put_u64(self.highest);
        row.put_u64(self.removed_below);
        row.put_u32(self.outcomes);
        row.freeze()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`RowError`] for anything [`ClientHead::encode`] does not write.
    pub fn decode(row: &[u8]) -> Result<Self, RowError> {
        let error = RowError { what: "client", bytes: row.len() };
        let [FORMAT, rest @ ..] = row else { return Err(error) };
        let rest = <[u8; Self::BYTES]>::try_from(rest).map_err(|_| error)?;
        let number = |at: usize| rest[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self {
            created: Millis::new(number(0)),
            last: Millis::new(number(8)),
            done_below: number(16),
            highest: number(24),
            removed_below: number(32),
            outcomes: u32::from_be_bytes([rest[40], rest[41], rest[42], rest[43]]),
        })
    }
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
}

impl Outcome {
    /// Encodes it as a row.
    pub fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(18);
        row.put_u8(FORMAT);
        match self {
            Self::Written(revision) => {
                row.put_u8(1);
                row.put_u64(revision.get());
            }
            Self::Deleted(existed) => {
                row.put_u8(2);
                row.put_u8(u8::from(*existed));
            }
            Self::ConditionFailed(revision) => {
                row.put_u8(3);
                row.put_u64(revision.get());
            }
            Self::Counter(value, revision) => {
                row.put_u8(4);
                row.put_i64(*value);
                row.put_u64(revision.get());
            }
            Self::NotANumber => row.put_u8(5),
        }
        row.freeze()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`RowError`] for anything [`Outcome::encode`] does not write.
    pub fn decode(row: &[u8]) -> Result<Self, RowError> {
        let error = RowError { what: "outcome", bytes: row.len() };
        let [FORMAT, tag, rest @ ..] = row else { return Err(error) };
        let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).map(u64::from_be_bytes).map_err(|_| error.clone());
        match (*tag, rest) {
            (1, rest) => Ok(Self::Written(Revision::new(number(rest)?))),
            (2, [existed @ (0 | 1)]) => Ok(Self::Deleted(*existed == 1)),
            (3, rest) => Ok(Self::ConditionFailed(Revision::new(number(rest)?))),
            (4, rest) if rest.len() == 16 => {
                Ok(Self::Counter(number(&rest[..8])?.cast_signed(), Revision::new(number(&rest[8..])?)))
            }
            (5, []) => Ok(Self::NotANumber),
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_round_trip() {
        let row = encode_value(Revision::new(7), b"value");
        assert_eq!(decode_value(&row).unwrap(), (Bytes::from_static(b"value"), Revision::new(7)));
        assert_eq!(decode_millis(&encode_millis(Millis::new(9))).unwrap(), Millis::new(9));
        let client = ClientId::new(Uuid::from_u128(5));
        assert_eq!(decode_client_key(&client_head_key(client)).unwrap(), (client, None));
        assert_eq!(decode_client_key(&client_outcome_key(client, 8)).unwrap(), (client, Some(8)));
        let head = ClientHead {
            created: Millis::new(1),
            last: Millis::new(2),
            done_below: u64::MAX,
            highest: 5,
            removed_below: 4,
            outcomes: 3,
        };
        assert_eq!(ClientHead::decode(&head.encode()).unwrap(), head);
        for outcome in [
            Outcome::Written(Revision::new(u64::MAX)),
            Outcome::Deleted(true),
            Outcome::Deleted(false),
            Outcome::ConditionFailed(Revision::ZERO),
            Outcome::Counter(i64::MIN, Revision::new(3)),
            Outcome::NotANumber,
        ] {
            assert_eq!(Outcome::decode(&outcome.encode()).unwrap(), outcome);
        }
    }

    proptest! {
        #[test]
        fn decode_rejects_or_round_trips_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let row = Bytes::from(bytes);
            if let Ok((value, revision)) = decode_value(&row) {
                prop_assert_eq!(encode_value(revision, &value), row.clone());
            }
            if let Ok(time) = decode_millis(&row) {
                prop_assert_eq!(encode_millis(time), row.clone());
            }
            if let Ok(head) = ClientHead::decode(&row) {
                prop_assert_eq!(head.encode(), row.clone());
            }
            if let Ok(outcome) = Outcome::decode(&row) {
                prop_assert_eq!(outcome.encode(), row.clone());
            }
            let _ = decode_client_key(&row);
        }
    }
}
