//! Record in a partition's log of the last merge that brought it its right neighbour's keys.

use crate::rows::row::{MERGED_KEY, RowError};
use crate::rows::view::{View, ViewError};
use archon_types::{Millis, OpId, Revision, Seq, Version};
use bytes::{BufMut, Bytes, BytesMut};

const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 1 + 8 + 8 + 8;

/// Record of the last merge: the partition's log has all rows of the right one, with lasting consequences for revisions
/// and names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergeRecord {
    /// The merge attempt.
    pub attempt: Version,
    /// Offset from log position to revision: merged-in rows have revisions of another log, and revisions keep rising
    /// (PROTOCOL rule 49).
    pub base: u64,
    /// Writes of keys from `from` on with a stamp up to here are done only if recorded: their client may have been
    /// redirected to the other partition, with a late duplicate still on its way (rule 50).
    pub through: Millis,
    /// The least key that the partition ever got from another one.
    pub from: Bytes,
}

impl MergeRecord {
    /// Returns the record that applies now, as this view's reader sees it.
    ///
    /// # Errors
    /// [`ViewError`] if the row cannot be read.
    pub fn current(view: &dyn View) -> Result<Option<Self>, ViewError> {
        Ok(view.get(MERGED_KEY)?.map(|row| Self::decode(&row)).transpose()?)
    }

    /// Returns the record to write with the entry at `seq` and log time `at`, once all keys from `from` on are there,
    /// none with a revision above `last`; `before` is the previous record.
    pub fn next(before: Option<&Self>, attempt: Version, from: Bytes, last: Revision, seq: Seq, at: Millis) -> Self {
        let base = before.map_or(0, |before| before.base).max(last.get().saturating_sub(seq.get()));
        let from = before.map(|before| &before.from).filter(|before| **before < from).cloned().unwrap_or(from);
        Self { attempt, base, through: at, from }
    }

    /// Returns the revision that the entry at this position writes.
    pub fn revision(of: Option<&Self>, seq: Seq) -> Revision {
        Revision::new(seq.get().saturating_add(of.map_or(0, |of| of.base)))
    }

    /// Returns whether a write of this key under this name is done only if it is recorded.
    pub fn bars(&self, key: &[u8], id: &OpId) -> bool {
        key >= &self.from[..] && id.stamp <= self.through
    }

    /// Encodes it as a row.
    pub fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(HEAD_BYTES + self.from.len());
        row.put_u8(FORMAT);
        row.put_u64(self.attempt.get());
        row.put_u64(self.base);
        row.put_u64(self.through.get());
        row.put_slice(&self.from);
        row.freeze()
    }

    /// Decodes a row; the key shares its memory.
    ///
    /// # Errors
    /// [`RowError`] for anything [`MergeRecord::encode`] does not write.
    pub fn decode(row: &Bytes) -> Result<Self, RowError> {
        let error = RowError { what: "merge", bytes: row.len() };
        let Some((head, _)) = row.split_first_chunk::<HEAD_BYTES>().filter(|(head, _)| head[0] == FORMAT) else {
            return Err(error);
        };
        let number = |at: usize| head[at..at + 8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self {
            attempt: Version::new(number(1)),
            base: number(9),
            through: Millis::new(number(17)),
            from: row.slice(HEAD_BYTES..),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::ClientId;
    use proptest::prelude::*;

    fn merged(attempt: u64, base: u64, through: u64, from: &'static [u8]) -> MergeRecord {
        let (attempt, through, from) = (Version::new(attempt), Millis::new(through), Bytes::from_static(from));
        MergeRecord { attempt, base, through, from }
    }

    proptest! {
        #[test]
        fn merge_records_round_trip(attempt: u64, base: u64, through: u64, from in proptest::collection::vec(any::<u8>(), 0..20)) {
            let (attempt, through) = (Version::new(attempt), Millis::new(through));
            let merged = MergeRecord { attempt, base, through, from: from.into() };
            prop_assert_eq!(MergeRecord::decode(&merged.encode()).unwrap(), merged);
        }

        #[test]
        fn decode_rejects_or_round_trips_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let row = Bytes::from(bytes);
            if let Ok(merged) = MergeRecord::decode(&row) {
                prop_assert_eq!(merged.encode(), row);
            }
        }

        #[test]
        fn revisions_rise_over_any_number_of_merges(merges in proptest::collection::vec((1_u64..50, 0_u64..1_000), 1..8)) {
            let (mut seq, mut highest, mut current) = (0_u64, 0_u64, None);
            for (entries, last) in merges {
                seq += entries;
                let (attempt, last_revision, end) = (Version::new(seq), Revision::new(last), Seq::new(seq));
                current = Some(MergeRecord::next(current.as_ref(), attempt, Bytes::new(), last_revision, end, Millis::ZERO));
                let revision = MergeRecord::revision(current.as_ref(), Seq::new(seq + 1)).get();
                prop_assert!(revision > last && revision > highest, "{} after {} and {}", revision, last, highest);
                highest = revision;
                seq += 1;
            }
        }
    }

    #[test]
    fn moved_keys_are_barred_up_to_last_merge() {
        let id = |stamp| OpId {
            client: ClientId::new(uuid::Uuid::from_u128(1)),
            number: 1,
            done_below: 0,
            stamp: Millis::new(stamp),
        };
        let merged = merged(7, 0, 50, b"m");
        let bars = |key: &[u8], stamp| merged.bars(key, &id(stamp));
        assert!(bars(b"m", 50) && bars(b"z", 3));
        assert!(!bars(b"m", 51) && !bars(b"lz", 50));
    }

    #[test]
    fn next_merge_keeps_least_key_of_earlier_ones() {
        let first = merged(7, 30, 50, b"m");
        let next = |from: &'static [u8], last, seq| {
            let (last, seq) = (Revision::new(last), Seq::new(seq));
            MergeRecord::next(Some(&first), Version::new(9), Bytes::from_static(from), last, seq, Millis::new(80))
        };
        assert_eq!(next(b"p", 100, 90), merged(9, 30, 80, b"m"));
        assert_eq!(next(b"c", 200, 90), merged(9, 110, 80, b"c"));
    }
}
