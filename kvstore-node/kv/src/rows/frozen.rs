//! Committed rows on their way from a memtable to the engine.

use super::clears::{Clears, clears};
use super::row_map::{RowMap, is_value};
use crate::operations::effect::RowChange;
use archon_types::{KeyRange, Seq};
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};

/// A committed row.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) value: Option<Bytes>,
    /// No row below these ones has it, or the frozen ones remove it: removing it leaves nothing to write.
    pub(crate) fresh: bool,
}

/// Committed rows on their way to the engine; a removed row has no value. Clones share the rows.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// Position up to which the engine will hold everything.
    pub upto: Seq,
    /// Rows by key, unsorted as they were frozen.
    rows: Arc<RowMap<Held>>,
    /// The same in order of key, once the flusher has sorted them.
    sorted: Arc<OnceLock<Box<[RowChange]>>>,
    /// Cleared ranges of user keys, applied before the rows here.
    clears: Arc<[KeyRange]>,
    /// Cost to the budget.
    bytes: usize,
}

impl Frozen {
    pub(crate) fn new(upto: Seq, rows: RowMap<Held>, clears: Clears, bytes: usize) -> Self {
        let clears = clears.into_ranges().collect();
        Self { upto, rows: Arc::new(rows), sorted: Arc::default(), clears, bytes }
    }

    /// Returns the ranges of user keys to remove from the engine before the rows are written. Rows that an entry
    /// cleared are no longer among the rows, and later writes are, so this order is right wherever the entries stood.
    pub fn clears(&self) -> &[KeyRange] {
        &self.clears
    }

    /// Returns the bytes of the rows, including the overhead of each.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all rows, in order of key. Sorts them once, perhaps a million: not for a thread that others wait for.
    pub fn rows(&self) -> &[RowChange] {
        let change = |(key, held): (&Bytes, &Held)| RowChange { key: key.clone(), value: held.value.clone() };
        self.sorted.get_or_init(|| self.rows.rows().into_iter().map(change).collect())
    }

    /// Returns user rows, in no order.
    pub fn values(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.rows.values().map(|(key, held)| (key, held.value.as_ref()))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        match self.rows.get(key) {
            Some(held) => Some(held.value.as_ref()),
            None => self.hides(key).then_some(None),
        }
    }

    /// Returns whether the engine's row with this key is cleared, unless there is one here.
    pub(crate) fn hides(&self, key: &[u8]) -> bool {
        self.clears.iter().any(|range| clears(range, key))
    }

    /// Returns user rows between two keys, in descending order.
    pub(crate) fn values_back(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        let sorted = self.sorted.get().map(|rows| {
            let within = |bounds, row: &RowChange| RangeBounds::<[u8]>::contains(&bounds, &row.key[..]);
            let end = rows.partition_point(|row| within((Bound::Unbounded, to), row));
            let within = move |row: &&RowChange| RangeBounds::<[u8]>::contains(&(from, Bound::Unbounded), &row.key[..]);
            let values = rows[..end].iter().rev().take_while(within).filter(|row| is_value(&row.key));
            values.map(|row| (&row.key, row.value.as_ref()))
        });
        let found = sorted.is_none().then(|| self.rows.values_between(from, to).rev());
        let found = found.map(|rows| rows.map(|(key, held)| (key, held.value.as_ref())));
        sorted.into_iter().flatten().chain(found.into_iter().flatten())
    }

    /// Reads the sorted rows if they exist, and the map until then.
    pub(crate) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        let sorted = self.sorted.get().map(|rows| {
            let within = |bounds, row: &RowChange| RangeBounds::<[u8]>::contains(&bounds, &row.key[..]);
            let start = rows.partition_point(|row| !within((from, Bound::Unbounded), row));
            let within = move |row: &&RowChange| within((Bound::Unbounded, to), row);
            rows[start..].iter().take_while(within).map(|row| (&row.key, row.value.as_ref()))
        });
        let found = sorted.is_none().then(|| self.rows.range(from, to).map(|(key, held)| (key, held.value.as_ref())));
        sorted.into_iter().flatten().chain(found.into_iter().flatten())
    }
}
