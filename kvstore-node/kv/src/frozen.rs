//! Committed rows on their way from a memtable to the engine.

use super::clears::{Clears, clears};
use super::effect::RowChange;
use super::row_map::{RowMap, is_value};
use archon_types::{KeyRange, Seq};
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};

/// A committed row.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) value: Option<Bytes>,
    /// Nothing below these rows holds it, or the frozen ones remove it: removing it leaves nothing to write.
    pub(crate) fresh: bool,
}

/// Committed rows on their way to the engine; a removed row has no value. Clones share the rows.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// The engine is to hold everything up to here.
    pub upto: Seq,
    /// As they were found by key before: whoever froze them did nothing about them.
    rows: Arc<RowMap<Held>>,
    /// The same in order of key, once the flusher has made that.
    sorted: Arc<OnceLock<Box<[RowChange]>>>,
    /// Users' rows of these keys are gone, but for those that are here.
    clears: Arc<[KeyRange]>,
    /// What they count against the budget.
    bytes: usize,
}

impl Frozen {
    pub(crate) fn new(upto: Seq, rows: RowMap<Held>, clears: Clears, bytes: usize) -> Self {
        let clears = clears.into_ranges().collect();
        Self { upto, rows: Arc::new(rows), sorted: Arc::default(), clears, bytes }
    }

    /// Users' rows of these keys are to be removed from the engine before the rows are written. What an entry cleared is not
    /// among the rows any more, and what was written there since is: so one order is right wherever the entries stood.
    pub fn clears(&self) -> &[KeyRange] {
        &self.clears
    }

    /// Bytes of the rows, with what each costs beside its key and value.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// All rows, in order of key. There may be a million to be sorted, once: nothing for a thread that others wait for.
    pub fn rows(&self) -> &[RowChange] {
        let change = |(key, held): (&Bytes, &Held)| RowChange { key: key.clone(), value: held.value.clone() };
        self.sorted.get_or_init(|| self.rows.rows().into_iter().map(change).collect())
    }

    /// Users' rows, in no order.
    pub fn values(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.rows.values().map(|(key, held)| (key, held.value.as_ref()))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        match self.rows.get(key) {
            Some(held) => Some(held.value.as_ref()),
            None => self.hides(key).then_some(None),
        }
    }

    /// Whether the engine's row with this key is gone, unless there is one here.
    pub(crate) fn hides(&self, key: &[u8]) -> bool {
        self.clears.iter().any(|range| clears(range, key))
    }

    /// Users' rows between two keys, the greatest first.
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

    /// As they lie in order where that is there already; from the map until then.
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
