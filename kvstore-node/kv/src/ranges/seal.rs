//! Seal in a partition's log on keys that are about to be another partition's.

use crate::rows::row::{RowError, SEAL_KEY};
use crate::rows::view::{View, ViewError};
use archon_types::{Epoch, KeyRange, Position, Seq, Version};
use bytes::{BufMut, Bytes, BytesMut};

const FORMAT: u8 = 1;
/// Format, attempt, position and the length of `at`.
const HEAD_BYTES: usize = 1 + 8 + 16 + 4;
const NO_END: u8 = 0;
const END: u8 = 1;

/// Seal on the keys in `[at, end)`: from the entry that set this row on, a leader admits neither reads nor writes
/// there, until an entry removes the row. Uncommitted entries in the leader's log count too; forming the other
/// partition's copy waits until the row is committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seal {
    /// The split attempt that it belongs to.
    pub attempt: Version,
    /// The least key that is sealed.
    pub at: Bytes,
    /// The least key beyond; `None`: sealed up to the last key.
    pub end: Option<Bytes>,
    /// The position of the entry that sealed them: where the log of the other partition begins.
    pub position: Position,
}

impl Seal {
    /// Returns whether it covers this key.
    pub fn covers(&self, key: &[u8]) -> bool {
        key >= &self.at[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Returns the sealed keys.
    pub fn range(&self) -> KeyRange {
        KeyRange { begin: self.at.clone(), end: self.end.clone() }
    }

    /// Returns the seal that applies now, as this view's reader sees it: a leader uses the newest, forming a copy the
    /// committed one.
    ///
    /// # Errors
    /// [`ViewError`] if the row cannot be read.
    pub fn current(view: &dyn View) -> Result<Option<Self>, ViewError> {
        Ok(view.get(SEAL_KEY)?.map(|row| Self::decode(&row)).transpose()?)
    }

    /// Encodes it as a row.
    pub fn encode(&self) -> Bytes {
        let Position { epoch, seq } = self.position;
        let end_bytes = self.end.as_ref().map_or(0, Bytes::len);
        let mut row = BytesMut::with_capacity(HEAD_BYTES + self.at.len() + 1 + end_bytes);
        row.put_u8(FORMAT);
        row.put_u64(self.attempt.get());
        row.put_u64(epoch.get());
        row.put_u64(seq.get());
        // A key is some thousand bytes long at most.
        row.put_u32(self.at.len() as u32);
        row.put_slice(&self.at);
        match &self.end {
            None => row.put_u8(NO_END),
            Some(end) => {
                row.put_u8(END);
                row.put_slice(end);
            }
        }
        row.freeze()
    }

    /// Decodes a row; the keys share its memory.
    ///
    /// # Errors
    /// [`RowError`] for anything [`Seal::encode`] does not write.
    pub fn decode(row: &Bytes) -> Result<Self, RowError> {
        let error = RowError { what: "seal", bytes: row.len() };
        let Some((head, rest)) = row.split_first_chunk::<HEAD_BYTES>() else { return Err(error) };
        let number = |at: usize| head[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let length = usize::try_from(u32::from_be_bytes([head[25], head[26], head[27], head[28]]));
        let Some((mark, end)) = length.ok().and_then(|length| rest.get(length..)?.split_first()) else {
            return Err(error);
        };
        let end = match (*mark, end) {
            (NO_END, []) => None,
            (END, end) => Some(row.slice_ref(end)),
            _ => return Err(error),
        };
        if head[0] != FORMAT {
            return Err(error);
        }
        let at = row.slice(HEAD_BYTES..row.len() - 1 - end.as_ref().map_or(0, Bytes::len));
        Ok(Self {
            attempt: Version::new(number(1)),
            at,
            end,
            position: Position::new(Epoch::new(number(9)), Seq::new(number(17))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal() -> impl Strategy<Value = Seal> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
        let position =
            (any::<u64>(), any::<u64>()).prop_map(|(epoch, seq)| Position::new(Epoch::new(epoch), Seq::new(seq)));
        (any::<u64>(), bytes(), proptest::option::of(bytes()), position).prop_map(|(attempt, at, end, position)| Seal {
            attempt: Version::new(attempt),
            at,
            end,
            position,
        })
    }

    proptest! {
        #[test]
        fn seals_round_trip(seal in seal()) {
            prop_assert_eq!(Seal::decode(&seal.encode()).unwrap(), seal);
        }

        #[test]
        fn decode_rejects_or_round_trips_any_bytes(seal in seal(), bytes in proptest::collection::vec(any::<u8>(), 0..60), at: proptest::sample::Index, byte: u8) {
            let mut damaged = seal.encode().to_vec();
            let length = damaged.len();
            damaged[at.index(length)] = byte;
            for row in [bytes, damaged].map(Bytes::from) {
                if let Ok(seal) = Seal::decode(&row) {
                    prop_assert_eq!(seal.encode(), row);
                }
            }
        }

        #[test]
        fn truncated_seal_is_rejected(seal in seal(), at: proptest::sample::Index) {
            let row = Seal { end: None, ..seal }.encode();
            prop_assert!(Seal::decode(&row.slice(..at.index(row.len()))).is_err());
        }
    }

    #[test]
    fn seal_covers_keys_from_begin_to_end() {
        let at = Bytes::from_static(b"m");
        let seal =
            Seal { attempt: Version::new(1), at, end: None, position: Position::new(Epoch::new(1), Seq::new(1)) };
        assert_eq!([&b"lz"[..], b"m", b"zz"].map(|key| seal.covers(key)), [false, true, true]);
        let seal = Seal { end: Some(Bytes::from_static(b"z")), ..seal };
        assert_eq!([&b"lz"[..], b"m", b"y", b"z"].map(|key| seal.covers(key)), [false, true, true, false]);
    }
}
