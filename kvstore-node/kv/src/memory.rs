//! An engine in memory, for tests and simulations.

use crate::engine::{Between, Change, Cleared, Engine, EngineError, Page, PageLimit, check_size, is_empty_range};
use archon_types::{PlacementId, ScanOrder};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Rows = BTreeMap<(PlacementId, Bytes), Bytes>;

/// Rows in a map; there is nothing to sync.
#[derive(Debug, Default)]
pub struct MemoryEngine {
    rows: Mutex<Rows>,
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// A panic while the map was held leaves it as it was: every change is one insertion or removal.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page of a map of rows: what [`Engine::page`] gives.
pub fn page_of(
    rows: &BTreeMap<(PlacementId, Bytes), Bytes>,
    space: PlacementId,
    (from, to): Between<'_>,
    order: ScanOrder,
    limit: PageLimit,
) -> Page {
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
    if is_empty_range(&start, &end) {
        return Page::default();
    }
    let rows = rows.range((start, end)).map(|((_, key), value)| (key, value));
    match order {
        ScanOrder::Ascending => Page::of(rows, limit),
        ScanOrder::Descending => Page::of(rows.rev(), limit),
    }
}

impl Engine for MemoryEngine {
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.rows().get(&(space, Bytes::copy_from_slice(key))).cloned())
    }

    fn page(
        &self,
        space: PlacementId,
        keys: Between<'_>,
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

    fn clear(&self, space: PlacementId, rows_max: usize) -> Result<Cleared, EngineError> {
        let mut rows = self.rows();
        let keys: Vec<_> = rows
            .range((space, Bytes::new())..)
            .take_while(|((row_space, _), _)| *row_space == space)
            .take(rows_max.saturating_add(1))
            .map(|(key, _)| key.clone())
            .collect();
        let done = keys.len() <= rows_max;
        let removed = keys.len().min(rows_max);
        for key in &keys[..removed] {
            rows.remove(key);
        }
        Ok(Cleared { removed, done })
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
