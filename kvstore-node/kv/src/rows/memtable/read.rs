//! Reads of a memtable.

use super::{Memtable, UncommittedRow};
use crate::rows::newer::newer;
use crate::rows::row;
use crate::rows::row_map::{RowMap, is_value, spans_values};
use crate::rows::view::Reader;
use archon_types::{KeyRange, Seq};
use bytes::Bytes;
use std::ops::Bound;

impl Memtable {
    /// Returns whether the engine, which was given everything up to `given`, has yet to clear some of these keys.
    pub fn is_to_clear(&self, keys: &KeyRange, given: Seq) -> bool {
        let frozen = self.frozen.as_ref().filter(|frozen| frozen.upto > given);
        let frozen = frozen.is_some_and(|frozen| frozen.clears().iter().any(|range| range.overlaps(keys)));
        frozen || self.clears.reach(keys) || self.open_clears.reach(keys)
    }

    /// Returns the ranges in which the engine may still hold rows that committed entries have cleared.
    pub fn cleared_ranges(&self) -> Vec<KeyRange> {
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.clears());
        frozen.chain(self.clears.ranges()).cloned().collect()
    }

    /// Returns a row as `reader` sees it here: `None` if the engine must be asked, `Some(None)` if the row was removed
    /// or cleared. The log time is always that of the last committed entry.
    pub fn get(&self, key: &[u8], reader: Reader) -> Option<Option<&Bytes>> {
        if reader == Reader::Newest {
            if let Some(newest) = self.newest(is_value(key)).get(key) {
                return Some(newest.value.as_ref());
            }
            if self.open_clears.hide(key) {
                return Some(None);
            }
        }
        match self.rows.get(key) {
            Some(value) => Some(value.as_ref()),
            None if self.clears.hide(key) => Some(None),
            None => self.frozen.as_ref()?.get(key),
        }
    }

    /// Returns whether a clear hides the engine's row with this key from `reader`. The engine may hold it until the
    /// flusher has cleared the range.
    pub(crate) fn hides(&self, key: &[u8], reader: Reader) -> bool {
        (reader == Reader::Newest && self.open_clears.hide(key))
            || self.clears.hide(key)
            || self.frozen.as_ref().is_some_and(|frozen| frozen.hides(key))
    }

    /// Returns the rows from `from` to `to` as `reader` sees them, in order of key; removed rows, and cleared ones
    /// still here, as `None`. Cleared rows that only the engine holds are not included.
    pub fn range<'a>(
        &'a self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reader: Reader,
    ) -> impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range(from, to));
        let rows = self.rows.range(from, to).map(|(key, value)| (key, value.as_ref()));
        let newest = |values: bool| {
            let asked = reader == Reader::Newest && (!values || spans_values(from, to));
            let rows = asked.then(|| self.newest(values).range(from, to));
            rows.into_iter().flatten().map(|(key, newest)| (key, newest.value.as_ref()))
        };
        let before = |one: &Bytes, other: &Bytes| one.cmp(other);
        newer(newer(newest(true), newest(false), before), self.merged(rows, frozen, reader, before), before)
    }

    /// Merges committed and frozen rows in the same order of key; rows hidden from the reader by a clear are returned
    /// as removed.
    fn merged<'a>(
        &'a self,
        rows: impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>,
        frozen: Option<impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)>>,
        reader: Reader,
        order: impl Fn(&Bytes, &Bytes) -> std::cmp::Ordering,
    ) -> impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)> {
        let frozen = frozen.into_iter().flatten();
        let frozen = frozen.map(|(key, value)| (key, value.filter(|_| !self.clears.hide(key))));
        let newest = reader == Reader::Newest;
        let hidden = move |key: &Bytes| newest && self.open_clears.hide(key);
        newer(rows, frozen, order).map(move |(key, value)| (key, value.filter(|_| !hidden(key))))
    }

    /// Returns user rows from `from` to `to` as `reader` sees them, in descending order, as [`Memtable::range`] does.
    pub fn values_back<'a>(
        &'a self,
        from: Bound<&'a [u8]>,
        to: Bound<&'a [u8]>,
        reader: Reader,
    ) -> impl Iterator<Item = (&'a Bytes, Option<&'a Bytes>)> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.values_back(from, to));
        let rows = self.rows.values_between(from, to).rev().map(|(key, value)| (key, value.as_ref()));
        let newest = (reader == Reader::Newest).then(|| self.newest(true).values_between(from, to).rev());
        let newest = newest.into_iter().flatten().map(|(key, newest)| (key, newest.value.as_ref()));
        let before = |one: &Bytes, other: &Bytes| other.cmp(one);
        newer(newest, self.merged(rows, frozen, reader, before), before)
    }

    /// Returns the last committed user row of these keys that is here, removed or not.
    pub fn last_value(&self, keys: &KeyRange) -> Option<Bytes> {
        let (begin, end) = row::value_bounds(keys);
        let mut back = self.values_back(Bound::Included(&begin), Bound::Excluded(&end), Reader::Committed);
        back.next().map(|(key, _)| key.clone())
    }

    fn newest(&self, values: bool) -> &RowMap<UncommittedRow> {
        let newest = if values { &self.newest_values } else { &self.newest_others };
        newest.get_or_init(|| {
            let mut newest = RowMap::default();
            self.open.iter().for_each(|open| open.note(&mut newest, values));
            newest
        })
    }
}
