//! Committed rows of a placement that are not in the engine yet, for counts of stored data.

use crate::engine::Page;
use archon_kv::row::KIND_VALUE;
use archon_kv::{Memtable, Reader};
use archon_types::KeyRange;
use bytes::Bytes;
use std::ops::Bound;

/// Rows returned at once. Walking over them is the shard's whole cost of counting: less than a tenth of a millisecond.
const ROWS_MAX: usize = 1_024;

/// Some consecutive rows of a memtable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RowRun {
    /// Keys in order, each with the length of its value; `None` for a removed row.
    pub(crate) rows: Vec<(Bytes, Option<usize>)>,
    /// There may be rows after the last one.
    pub(crate) more: bool,
    /// Cleared ranges of user keys, which hide the engine's rows.
    pub(crate) cleared: Vec<KeyRange>,
}

impl RowRun {
    /// Returns committed rows of a memtable from `from` on, as many as are returned at once.
    pub(crate) fn from_key(memtable: &Memtable, from: Bound<&[u8]>) -> Self {
        Self::of(memtable, from, ROWS_MAX)
    }

    /// Returns committed rows of `memtable` from `from` on, at most `rows_max`.
    pub(crate) fn of(memtable: &Memtable, from: Bound<&[u8]>, rows_max: usize) -> Self {
        let mut found = memtable.range(from, Bound::Unbounded, Reader::Committed);
        let rows = found.by_ref().take(rows_max).map(|(key, value)| (key.clone(), value.map(Bytes::len))).collect();
        Self { rows, more: found.next().is_some(), cleared: memtable.cleared_ranges() }
    }

    /// Passes the rows that a reader would see of these over a page of the engine from the same key on, each with the
    /// bytes of its key and value, up to where both lists are complete. Returns that key unless it is the end of the
    /// placement, or of the page's range.
    pub(crate) fn over(&self, page: &Page, mut row: impl FnMut(&Bytes, usize)) -> Option<Bytes> {
        let page_end = page.rows.last().filter(|_| page.more).map(|row| &row.key);
        let own_end = self.rows.last().filter(|_| self.more).map(|(key, _)| key);
        let end = page_end.into_iter().chain(own_end).min();
        let within = |key: &Bytes| end.is_none_or(|end| key <= end);
        let mut see = |key: &Bytes, value_bytes: usize| row(key, key.len() + value_bytes);
        let mut over = self.rows.iter().take_while(|(key, _)| within(key)).peekable();
        for below in page.rows.iter().take_while(|row| within(&row.key)) {
            while let Some((key, value_bytes)) = over.next_if(|(key, _)| *key < below.key) {
                value_bytes.iter().for_each(|bytes| see(key, *bytes));
            }
            match over.next_if(|(key, _)| *key == below.key) {
                Some((key, value_bytes)) => value_bytes.iter().for_each(|bytes| see(key, *bytes)),
                None if self.hides(&below.key) => {}
                None => see(&below.key, below.value.len()),
            }
        }
        for (key, value_bytes) in over {
            value_bytes.iter().for_each(|bytes| see(key, *bytes));
        }
        end.cloned()
    }

    fn hides(&self, row: &[u8]) -> bool {
        let key = row.split_first().filter(|(kind, _)| **kind == KIND_VALUE).map(|(_, key)| key);
        key.is_some_and(|key| self.cleared.iter().any(|range| range.contains(key)))
    }
}
