//! Split-key selection by bytes: one walk over the rows of a partition, with bounded memory.

use bytes::Bytes;

/// Maximum number of marks.
const MARKS_MAX: usize = 1_024;

/// Rows in key order, of which some are kept as marks. Above `MARKS_MAX`, every second mark is dropped.
#[derive(Clone, Debug)]
pub struct ByteHalves {
    bytes: u64,
    /// Keys, each with the bytes of the rows before it.
    marks: Vec<(Bytes, u64)>,
    every_bytes: u64,
}

impl Default for ByteHalves {
    fn default() -> Self {
        Self { bytes: 0, marks: Vec::new(), every_bytes: 1 }
    }
}

impl ByteHalves {
    /// Adds the next row: its key, and the bytes of its key and value.
    pub fn add(&mut self, key: &[u8], bytes: u64) {
        let marked = self.marks.last().map(|(_, before)| before + self.every_bytes);
        if marked.is_none_or(|next| self.bytes >= next) {
            self.marks.push((Bytes::copy_from_slice(key), self.bytes));
            if self.marks.len() >= MARKS_MAX {
                self.thin();
            }
        }
        self.bytes += bytes;
    }

    fn thin(&mut self) {
        self.every_bytes = (self.bytes / (MARKS_MAX as u64 / 2)).max(self.every_bytes * 2);
        let mut next = 0;
        let every_bytes = self.every_bytes;
        self.marks.retain(|(_, before)| {
            let kept = *before >= next;
            if kept {
                next = *before + every_bytes;
            }
            kept
        });
    }

    /// Returns the bytes of all rows.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the marked key that divides the bytes most evenly. `None` without rows, or if one row is so large that a
    /// split would separate next to nothing.
    pub fn middle(&self) -> Option<Bytes> {
        self.cut(self.bytes / 2)
    }

    /// Returns the marked key with about an eighth of the bytes after it, for partitions that grow at their end: little
    /// has to be copied. The part is larger where the rest would otherwise be slightly above `most` bytes and be split
    /// again at once. `None` as for [`ByteHalves::middle`].
    pub fn near_the_end(&self, most: u64) -> Option<Bytes> {
        let before = self.bytes - self.bytes / 8;
        let little_above = before > most && before / 2 <= most;
        self.cut(if little_above { most - most / 8 } else { before })
    }

    /// Returns the marked key with about `wanted` bytes before it. Each side gets at least a quarter of its intended
    /// share.
    fn cut(&self, wanted: u64) -> Option<Bytes> {
        const LEAST_PART: u64 = 4;
        let (key, before) = self.marks.iter().min_by_key(|(_, before)| before.abs_diff(wanted))?;
        let (before, after) = (*before, self.bytes - before);
        let enough = |has: u64, wanted: u64| has > 0 && has.saturating_mul(LEAST_PART) >= wanted;
        (enough(before, wanted) && enough(after, self.bytes - wanted)).then(|| key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn halves(rows: impl IntoIterator<Item = (u32, u64)>) -> ByteHalves {
        let mut halves = ByteHalves::default();
        rows.into_iter().for_each(|(key, bytes)| halves.add(&key.to_be_bytes(), bytes));
        halves
    }

    fn middle(halves: &ByteHalves) -> Option<u32> {
        halves.middle().map(|key| u32::from_be_bytes(key[..].try_into().unwrap()))
    }

    #[test]
    fn few_rows_are_split_most_evenly() {
        assert_eq!(middle(&halves([])), None);
        assert_eq!(middle(&halves([(1, 10)])), None, "one row is in one piece");
        assert_eq!(middle(&halves([(1, 10), (2, 10)])), Some(2));
        assert_eq!(middle(&halves([(1, 10), (2, 10), (3, 100), (4, 10)])), Some(3));
        assert_eq!(middle(&halves([(1, 1), (2, 1_000)])), None, "that would be no half");
    }

    #[test]
    fn growing_end_is_split_at_last_eighth() {
        let at = |rows: u32, most: u64| {
            let halves = halves((0..rows).map(|key| (key, 10)));
            halves.near_the_end(most).map(|key| u32::from_be_bytes(key[..].try_into().unwrap()))
        };
        assert_eq!((at(0, 5), at(1, 5), at(2, 15), at(8, 75)), (None, None, Some(1), Some(7)));
        assert_eq!(at(80, 720), Some(70));
        assert_eq!(at(80, 640), Some(56), "with 70 rows it would be above its limit again");
        assert_eq!(at(80, 300), Some(70), "it is split again anyway, when it does not grow any more");
        assert_eq!(halves([(1, 1), (2, 1_000)]).near_the_end(1_000), None);
    }

    #[test]
    fn mark_count_is_bounded_for_many_rows() {
        let halves = halves((0..1_000_000).map(|key| (key, 100)));
        assert!(halves.marks.len() < MARKS_MAX && halves.marks.len() >= MARKS_MAX / 4, "{}", halves.marks.len());
        assert_eq!(halves.bytes(), 100_000_000);
        let at = middle(&halves).unwrap();
        assert!(at.abs_diff(500_000) < 5_000, "{at}");
    }

    proptest! {
        /// The middle is a key of the rows, not the first, and both halves have their share up to the size of the
        /// largest row.
        #[test]
        fn middle_gives_both_halves_their_share(sizes in proptest::collection::vec(1..100_000_u64, 1..5_000)) {
            let halves = halves((0..).zip(sizes.iter().copied()));
            let total: u64 = sizes.iter().sum();
            prop_assert_eq!(halves.bytes(), total);
            let largest = sizes.iter().max().copied().unwrap_or_default();
            match middle(&halves) {
                Some(at) => {
                    prop_assert!(at > 0 && (at as usize) < sizes.len());
                    let before: u64 = sizes[..at as usize].iter().sum();
                    prop_assert!((2 * before).abs_diff(total) <= 2 * (largest + 2 * total / (MARKS_MAX as u64 / 4)));
                }
                None => prop_assert!(sizes.len() == 1 || largest * 8 >= total * 3, "{sizes:?}"),
            }
        }
    }
}
