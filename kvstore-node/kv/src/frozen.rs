//! Committed rows on their way from a memtable to the engine.

use super::effect::RowChange;
use super::row_map::{RowMap, is_value};
use archon_types::Seq;
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
    /// What they count against the budget.
    bytes: usize,
}

impl Frozen {
    pub(crate) fn new(upto: Seq, rows: RowMap<Held>, bytes: usize) -> Self {
        Self { upto, rows: Arc::new(rows), sorted: Arc::default(), bytes }
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
        self.rows.get(key).map(|held| held.value.as_ref())
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
