//! Committed rows and records on their way from a memtable to the engine.

use super::cleared_ranges::{ClearedRanges, clears};
use super::row::{KIND_CLIENT, client_key};
use super::row_map::{RowMap, is_value};
use super::view::{ViewError, next_client};
use crate::engine::{Change, Engine};
use crate::exactly_once::window::{Piece, Pieces, Window};
use crate::operations::effect::RowChange;
use archon_types::{ClientId, KeyRange, PlacementId, Seq};
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};

/// Committed rows on their way to the engine; a removed row has no value. Clones share the rows.
#[derive(Clone, Debug)]
pub struct FrozenRows {
    /// Position up to which the engine will hold everything.
    pub upto: Seq,
    /// Rows by key, unsorted as they were frozen.
    rows: Arc<RowMap<Option<Bytes>>>,
    /// The same in order of key, once the flusher has sorted them.
    sorted: Arc<OnceLock<Box<[RowChange]>>>,
    /// Records by client.
    pieces: Arc<Pieces>,
    /// Cleared ranges of user keys, applied before the rows here.
    clears: Arc<[KeyRange]>,
    /// Cost to the budget.
    bytes: usize,
}

/// Returns the change that joins a piece with the engine's window of the client.
fn joined(client: ClientId, piece: &Piece, engine: &dyn Engine, space: PlacementId) -> Result<Change, ViewError> {
    let key = client_key(client);
    let stored = if piece.reset { None } else { engine.get(space, &key)? };
    let stored = stored.map(|row| Window::decode(&row)).transpose()?;
    Ok(Change { space, key, value: piece.over(stored).map(|window| window.encode()) })
}

impl FrozenRows {
    pub(crate) fn new(
        upto: Seq,
        rows: RowMap<Option<Bytes>>,
        pieces: Pieces,
        clears: ClearedRanges,
        bytes: usize,
    ) -> Self {
        let clears = clears.into_ranges().collect();
        Self { upto, rows: Arc::new(rows), sorted: Arc::default(), pieces: Arc::new(pieces), clears, bytes }
    }

    /// Returns everything to write to the engine's `space`, in order of key: the rows, and for each client its window,
    /// which is the engine's joined with what is here. User rows and windows come before the position row, so a part
    /// that is written repeats. Windows are read and joined as they are taken, as all of them may be large together.
    ///
    /// Only the engine's one writer may call it, and it must have written all earlier rows of the space when it takes the
    /// first window.
    ///
    /// # Errors
    /// [`ViewError`] in place of a window that cannot be read in the engine. Nothing comes after it, so the position row
    /// is not written.
    pub fn changes<'a>(
        &self,
        engine: &'a dyn Engine,
        space: PlacementId,
    ) -> impl Iterator<Item = Result<Change, ViewError>> + use<'a> {
        let values = self.rows().partition_point(|row| row.key.first() < Some(&KIND_CLIENT));
        let rows = |places: std::ops::Range<usize>| {
            let frozen = self.clone();
            places.map(move |at| {
                let RowChange { key, value } = &frozen.rows()[at];
                Ok(Change { space, key: key.clone(), value: value.clone() })
            })
        };
        let (frozen, mut from) = (self.clone(), Some(ClientId::NIL));
        let windows = std::iter::from_fn(move || {
            let (client, piece) = frozen.pieces.from(from?).next()?;
            from = next_client(client);
            Some(joined(client, piece, engine, space))
        });
        let all = rows(0..values).chain(windows).chain(rows(values..self.rows().len()));
        let mut is_unreadable = false;
        all.take_while(move |change| !std::mem::replace(&mut is_unreadable, change.is_err()))
    }

    pub(crate) fn pieces(&self) -> &Pieces {
        &self.pieces
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

    /// Returns all rows but the windows of clients, in order of key. Sorts them once, perhaps a million: not for a thread
    /// that others wait for.
    pub fn rows(&self) -> &[RowChange] {
        let change = |(key, value): (&Bytes, &Option<Bytes>)| RowChange { key: key.clone(), value: value.clone() };
        self.sorted.get_or_init(|| self.rows.rows().into_iter().map(change).collect())
    }

    /// Returns user rows, in no order.
    pub fn values(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.rows.values().map(|(key, value)| (key, value.as_ref()))
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        match self.rows.get(key) {
            Some(value) => Some(value.as_ref()),
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
        let found = found.map(|rows| rows.map(|(key, value)| (key, value.as_ref())));
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
        let found = sorted.is_none().then(|| self.rows.range(from, to).map(|(key, value)| (key, value.as_ref())));
        sorted.into_iter().flatten().chain(found.into_iter().flatten())
    }
}
