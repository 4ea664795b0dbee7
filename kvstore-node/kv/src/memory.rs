//! In-memory engine, for tests and simulations.

use crate::engine::{Change, ClearStep, Engine, EngineError, KeyBounds, Page, PageLimit, check_size, is_empty_range};
use archon_types::{PlacementId, ScanOrder};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rows by space and key.
pub type Rows = BTreeMap<(PlacementId, Bytes), Bytes>;

/// Rows in a map; there is nothing to sync.
#[derive(Debug, Default)]
pub struct MemoryEngine {
    rows: Mutex<Rows>,
}

impl MemoryEngine {
    /// Creates an empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks the map. A panic while it was locked leaves it consistent: every change is one insertion or removal.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a page of a map of rows, as [`Engine::page`] does.
pub fn page_of(rows: &Rows, space: PlacementId, keys: KeyBounds<'_>, order: ScanOrder, limit: PageLimit) -> Page {
    let rows = rows_of(rows, space, keys);
    match order {
        ScanOrder::Ascending => Page::of(rows, limit),
        ScanOrder::Descending => Page::of(rows.rev(), limit),
    }
}

/// Returns the rows of a map that one step of [`Engine::clear_range`] removes, and its result.
pub fn cleared_of(rows: &Rows, space: PlacementId, keys: KeyBounds<'_>, rows_max: usize) -> (Vec<Bytes>, ClearStep) {
    let mut rows = rows_of(rows, space, keys);
    let found: Vec<Bytes> = rows.by_ref().take(rows_max).map(|(key, _)| key.clone()).collect();
    let cleared = ClearStep { removed: found.len(), done: rows.next().is_none() };
    (found, cleared)
}

/// Returns the rows of a space between two keys.
fn rows_of<'a>(
    rows: &'a Rows,
    space: PlacementId,
    (from, to): KeyBounds<'_>,
) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a Bytes)> {
    let start = match from {
        Bound::Unbounded => Bound::Included((space, Bytes::new())),
        from => from.map(|key| (space, Bytes::copy_from_slice(key))),
    };
    let end = match to {
        Bound::Unbounded => match space.get().checked_add(1) {
            Some(next) => Bound::Excluded((PlacementId::new(next), Bytes::new())),
            None => Bound::Unbounded,
        },
        to => to.map(|key| (space, Bytes::copy_from_slice(key))),
    };
    let rows = (!is_empty_range(&start, &end)).then(|| rows.range((start, end)));
    rows.into_iter().flatten().map(|((_, key), value)| (key, value))
}

impl Engine for MemoryEngine {
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.rows().get(&(space, Bytes::copy_from_slice(key))).cloned())
    }

    fn page(
        &self,
        space: PlacementId,
        keys: KeyBounds<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError> {
        Ok(page_of(&self.rows(), space, keys, order, limit))
    }

    fn write(&self, changes: &[Change]) -> Result<(), EngineError> {
        let mut rows = self.rows();
        for change in changes {
            check_size(&change.key, change.value.as_deref())?;
            let key = (change.space, change.key.clone());
            match &change.value {
                Some(value) => rows.insert(key, value.clone()),
                None => rows.remove(&key),
            };
        }
        Ok(())
    }

    fn clear_range(&self, space: PlacementId, keys: KeyBounds<'_>, rows_max: usize) -> Result<ClearStep, EngineError> {
        let mut rows = self.rows();
        let (removed, cleared) = cleared_of(&rows, space, keys, rows_max);
        for key in removed {
            rows.remove(&(space, key));
        }
        Ok(cleared)
    }

    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
        let mut spaces: Vec<PlacementId> = Vec::new();
        for (space, _) in self.rows().keys() {
            if spaces.last() != Some(space) {
                spaces.push(*space);
            }
        }
        Ok(spaces)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }
}
