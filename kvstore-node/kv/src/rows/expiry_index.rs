//! Index of values that expire soon, by which a leader removes them.
//!
//! It is a hint: a leader looks at each row again before it removes it. It is bounded, and complete below a *horizon*: values
//! that did not fit expire at the horizon or later. Once the log time reaches the horizon, the rows are read again, in a pass
//! that takes every row that is due by then. A pass is followed by a pause in proportion to its pages, so that a partition
//! with many values that expire is not read all the time. A new leader reads the rows once, if the partition ever had a
//! value with an expiry.

use super::row::{self, EXPIRING_KEY, expiry_of};
use super::view::{View, ViewError};
use crate::engine::PageLimit;
use archon_types::{KeyRange, Millis, ScanOrder};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Most keys in the index of a partition.
const KEYS_MAX: usize = 4_096;
/// Most bytes of the index of a partition.
const BYTES_MAX: usize = 640 * 1024;
/// Bytes of memory that a key takes besides its own, in the set and on the heap.
const KEY_OVERHEAD_BYTES: usize = 96;
/// Least pause after a pass over the rows, in milliseconds.
const PAUSE_MS_MIN: u64 = 1_000;
/// Pause after a pass for each of its pages, in milliseconds. A page takes less than a tenth of that.
const PAUSE_MS_PER_PAGE: u64 = 5;
/// Time that never comes.
const NEVER: Millis = Millis::new(u64::MAX);

/// Progress of reading the rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum ScanProgress {
    /// Not begun.
    #[default]
    Unread,
    /// Rows up to here were read.
    Upto(Bytes),
    /// Every row was read.
    Done,
}

/// Values of one partition that expire soon, as its leader knows them.
#[derive(Debug)]
pub struct ExpiryIndex {
    /// In order of expiry; keys of rows.
    soonest: BTreeSet<(Millis, Bytes)>,
    bytes: usize,
    /// Values that are not in `soonest`, of rows that were read, expire at this time or later.
    horizon: Millis,
    reading: ScanProgress,
    /// Pages of the present or last pass.
    pages: u64,
    /// No value expires: the present or last pass has found none so far, and none was noted meanwhile.
    none: bool,
    /// End of the last pass.
    ended: Millis,
    /// The keys that are read.
    keys: KeyRange,
    keys_max: usize,
}

impl Default for ExpiryIndex {
    fn default() -> Self {
        Self::bounded(KEYS_MAX)
    }
}

impl ExpiryIndex {
    /// Creates the index of a partition with unread rows, of at most so many keys.
    pub const fn bounded(keys_max: usize) -> Self {
        Self {
            soonest: BTreeSet::new(),
            bytes: 0,
            horizon: NEVER,
            reading: ScanProgress::Unread,
            pages: 0,
            none: false,
            ended: Millis::ZERO,
            keys: KeyRange::ALL,
            keys_max,
        }
    }

    /// Notes a value that is written, by the key of its row.
    pub fn note(&mut self, key: &[u8], expires: Millis) {
        self.none = false;
        if expires < self.horizon {
            self.insert(key, expires);
        }
    }

    fn insert(&mut self, key: &[u8], expires: Millis) {
        if self.soonest.insert((expires, Bytes::copy_from_slice(key))) {
            self.bytes += key.len() + KEY_OVERHEAD_BYTES;
        }
        while self.soonest.len() > self.keys_max || self.bytes > BYTES_MAX {
            let Some((latest, key)) = self.soonest.pop_last() else { return };
            self.bytes -= key.len() + KEY_OVERHEAD_BYTES;
            self.horizon = self.horizon.min(latest);
        }
    }

    /// Returns whether there is anything to do at log time `at`, in a partition with these keys.
    pub fn has_work(&self, at: Millis, keys: &KeyRange) -> bool {
        let due = self.soonest.first().is_some_and(|(expires, _)| *expires <= at);
        due || self.reading != ScanProgress::Done || self.is_pass_due(at) || self.keys != *keys
    }

    /// Returns whether a pass over the rows begins at log time `at`, after the last one.
    fn is_pass_due(&self, at: Millis) -> bool {
        let pause = PAUSE_MS_MIN.max(self.pages.saturating_mul(PAUSE_MS_PER_PAGE));
        // A clock that went back does not prolong the pause.
        self.horizon <= at && (at < self.ended || self.ended.plus(pause) <= at)
    }

    /// Returns the keys of at most `rows_max` rows that expired by log time `at`, soonest first.
    pub fn due(&self, at: Millis, rows_max: usize) -> impl Iterator<Item = &Bytes> {
        self.soonest.iter().take_while(move |(expires, _)| *expires <= at).take(rows_max).map(|(_, key)| key)
    }

    /// Forgets the first `count` keys: their rows are removed, or did not expire.
    pub fn forget(&mut self, count: usize) {
        for _ in 0..count {
            let Some((_, key)) = self.soonest.pop_first() else { return };
            self.bytes -= key.len() + KEY_OVERHEAD_BYTES;
        }
    }

    /// Returns whether no row of the partition has an expiry, so that its mark can be removed.
    pub fn is_unused(&self) -> bool {
        self.none && self.reading == ScanProgress::Done && self.soonest.is_empty()
    }

    /// Reads a page of rows if that is needed at log time `at`, in a partition with these keys. Returns whether it did.
    ///
    /// # Errors
    /// [`ViewError`] if they cannot be read.
    pub fn read(&mut self, view: &dyn View, at: Millis, keys: &KeyRange, limit: PageLimit) -> Result<bool, ViewError> {
        if self.keys != *keys {
            // Other rows belong to the partition since.
            (self.keys, self.reading, self.pages) = (keys.clone(), ScanProgress::Unread, 0);
        } else if self.reading == ScanProgress::Done {
            if !self.is_pass_due(at) {
                return Ok(false);
            }
            (self.horizon, self.reading, self.pages) = (NEVER, ScanProgress::Unread, 0);
        }
        let (begin, end) = row::value_bounds(keys);
        let from = match &self.reading {
            ScanProgress::Unread if view.get(EXPIRING_KEY)?.is_none() => {
                (self.reading, self.none) = (ScanProgress::Done, false);
                return Ok(false);
            }
            ScanProgress::Upto(last) => Bound::Excluded(&last[..]),
            ScanProgress::Unread | ScanProgress::Done => {
                self.none = self.soonest.is_empty();
                Bound::Included(&begin[..])
            }
        };
        let page = view.page(from, &end, ScanOrder::Ascending, limit)?;
        for row in &page.rows {
            match expiry_of(&row.value) {
                // It is removed before the next page is read, so it needs room for that long only.
                Some(expires) if expires <= at => {
                    self.none = false;
                    self.insert(&row.key, expires);
                }
                Some(expires) => self.note(&row.key, expires),
                None => {}
            }
        }
        self.pages += 1;
        self.reading = match page.rows.last().filter(|_| page.more) {
            Some(last) => ScanProgress::Upto(Bytes::copy_from_slice(&last.key)),
            None => ScanProgress::Done,
        };
        if self.reading == ScanProgress::Done {
            self.ended = at;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::effect::{Effect, RowChange};
    use crate::rows::plain::Rows;
    use archon_types::Revision;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LIMIT: PageLimit = PageLimit { rows_max: 3, bytes_max: usize::MAX };

    fn set(key: u8, expires: Option<u64>) -> RowChange {
        let key = row::value_key(&[key]);
        match expires {
            Some(expires) => RowChange::set(key, row::encode_expiring(Revision::new(1), Millis::new(expires), b"v")),
            None => RowChange::set(key, row::encode_value(Revision::new(1), b"v")),
        }
    }

    fn marked() -> Rows {
        let mut rows = Rows::default();
        rows.0.insert(Bytes::from_static(EXPIRING_KEY), Bytes::new());
        rows
    }

    fn apply(rows: &mut Rows, change: RowChange) {
        rows.apply(&Effect::new(Millis::ZERO, vec![change]));
    }

    #[test]
    fn partition_without_mark_is_not_read() {
        let mut rows = Rows::default();
        apply(&mut rows, set(1, None));
        let mut index = ExpiryIndex::bounded(2);
        assert!(index.has_work(Millis::ZERO, &KeyRange::ALL));
        assert!(!index.read(&rows, Millis::ZERO, &KeyRange::ALL, LIMIT).unwrap());
        assert!(!index.has_work(Millis::new(u64::MAX - 1), &KeyRange::ALL));
    }

    #[test]
    fn other_keys_are_read_again() {
        let mut rows = marked();
        apply(&mut rows, set(7, Some(5)));
        let mut index = ExpiryIndex::bounded(2);
        let few = KeyRange { begin: Bytes::new(), end: Some(Bytes::from_static(b"\x05")) };
        while index.read(&rows, Millis::ZERO, &few, LIMIT).unwrap() {}
        assert_eq!(index.due(Millis::new(9), 9).count(), 0);
        assert!(index.has_work(Millis::ZERO, &KeyRange::ALL));
        while index.read(&rows, Millis::ZERO, &KeyRange::ALL, LIMIT).unwrap() {}
        assert_eq!(index.due(Millis::new(9), 9).count(), 1);
    }

    #[test]
    fn long_keys_are_bounded_by_bytes() {
        let mut index = ExpiryIndex::bounded(usize::MAX);
        for number in 0..200_u64 {
            index.note(&[vec![0; 4_096], number.to_be_bytes().to_vec()].concat(), Millis::new(number));
            assert!(index.bytes <= BYTES_MAX);
        }
        assert_eq!(index.horizon, Millis::new(index.soonest.len() as u64));
    }

    /// Reads all rows, and counts the due ones.
    fn pass(rows: &Rows, index: &mut ExpiryIndex, at: u64) -> (usize, usize) {
        let (mut pages, mut found) = (0, 0);
        while index.read(rows, Millis::new(at), &KeyRange::ALL, LIMIT).unwrap() {
            pages += 1;
            let due = index.due(Millis::new(at), usize::MAX).count();
            index.forget(due);
            found += due;
        }
        (pages, found)
    }

    #[test]
    fn pass_without_expiring_rows_shows_that_mark_is_unused() {
        let mut rows = marked();
        (0..9).for_each(|key| apply(&mut rows, set(key, None)));
        let mut index = ExpiryIndex::bounded(4);
        assert!(!index.is_unused());
        assert_eq!(pass(&rows, &mut index, 9), (3, 0));
        assert!(index.is_unused());
        index.note(b"key", Millis::new(50));
        index.forget(1);
        assert!(!index.is_unused(), "one was written since");
        for expires in [5, 50] {
            apply(&mut rows, set(4, Some(expires)));
            let mut index = ExpiryIndex::bounded(4);
            pass(&rows, &mut index, 9);
            assert!(!index.is_unused(), "{expires}");
        }
        let mut unmarked = ExpiryIndex::bounded(4);
        pass(&Rows::default(), &mut unmarked, 9);
        assert!(!unmarked.is_unused(), "there is no mark");
    }

    #[test]
    fn pass_finds_every_row_that_is_due() {
        let mut rows = marked();
        (0..90).for_each(|key| apply(&mut rows, set(key, Some(100 - u64::from(key)))));
        (90..99).for_each(|key| apply(&mut rows, set(key, Some(5))));
        let mut index = ExpiryIndex::bounded(4);
        assert_eq!(pass(&rows, &mut index, 200), (33, 99));
    }

    /// The pause of a pass with many pages is longer.
    #[test]
    fn passes_over_rows_are_paced() {
        let mut rows = marked();
        (0..90).for_each(|key| apply(&mut rows, set(key, Some(50_000 + u64::from(key)))));
        let mut index = ExpiryIndex::bounded(4);
        index.pages = 7;
        assert_eq!(pass(&rows, &mut index, 10), (30, 0));
        assert_eq!(index.horizon, Millis::new(50_004));
        index.horizon = Millis::new(20);
        assert!(!index.has_work(Millis::new(1_009), &KeyRange::ALL), "it was read just now");
        assert!(index.has_work(Millis::new(1_010), &KeyRange::ALL));
        index.pages = 400;
        assert!(!index.has_work(Millis::new(2_009), &KeyRange::ALL));
        assert!(index.has_work(Millis::new(2_010), &KeyRange::ALL));
    }

    proptest! {
        /// A leader that follows the index removes every expired row, and no other.
        #[test]
        fn every_expired_row_is_found(
            before in proptest::collection::vec((0..30_u8, proptest::option::of(1..50_u64)), 0..40),
            during in proptest::collection::vec((0..30_u8, proptest::option::of(1..50_u64)), 0..40),
            keys_max in 1..6_usize,
        ) {
            let mut rows = marked();
            before.into_iter().for_each(|(key, expires)| apply(&mut rows, set(key, expires)));
            let mut index = ExpiryIndex::bounded(keys_max);
            let mut during = during.into_iter();
            let mut at = 0;
            for turn in 0..2_000_u64 {
                if let Some((key, expires)) = during.next() {
                    let change = set(key, expires.map(|after| at + after));
                    expires.iter().for_each(|after| index.note(&change.key, Millis::new(at + after)));
                    apply(&mut rows, change);
                }
                at += 20 * u64::from(turn % 3 == 0);
                let now = Millis::new(at);
                index.read(&rows, now, &KeyRange::ALL, LIMIT).unwrap();
                let due: Vec<Bytes> = index.due(now, 2).cloned().collect();
                for key in &due {
                    let row = rows.0.get(key);
                    if row.and_then(|row| expiry_of(row)).is_some_and(|expires| expires <= now) {
                        apply(&mut rows, RowChange::remove(key.clone()));
                    }
                }
                index.forget(due.len());
                prop_assert!(index.soonest.len() <= keys_max);
            }
            let left: BTreeMap<_, _> = rows.0.iter().filter(|(_, row)| expiry_of(row).is_some()).collect();
            prop_assert!(left.is_empty(), "{left:?}");
        }
    }
}
