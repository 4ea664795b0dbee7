//! A storage engine that loses, at a crash, any part of its unsynced data.

use crate::random::Random;
use archon_kv::engine::{Change, ClearStep, Engine, EngineError, KeyBounds, Page, PageLimit};
use archon_kv::memory::{Rows, cleared_of, page_of};
use archon_types::{PlacementId, ScanOrder};
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug, Default)]
struct Inner {
    rows: Rows,
    durable: Rows,
    unsynced: Vec<Change>,
    /// A write met a full disk: until the engine is opened again, it refuses all but reads of some rows, which it has in
    /// memory. This number determines them.
    refuses: Option<u64>,
}

/// One node's engine.
#[derive(Debug, Default)]
pub(crate) struct SimEngine(Mutex<Inner>);

/// Error of an engine that refuses an access.
fn refusal() -> EngineError {
    let source = std::io::ErrorKind::QuotaExceeded.into();
    EngineError::Io { directory: "simulated".into(), what: "access a row", source }
}

impl Clone for SimEngine {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.inner().clone()))
    }
}

impl SimEngine {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the engine refuse all but reads of some rows until it is opened again, as after a write that met a full disk.
    pub(crate) fn refuse(&self, random: &mut Random) {
        self.inner().refuses = Some(random.next());
    }

    /// Opens the engine again.
    pub(crate) fn open(&self) {
        self.inner().refuses = None;
    }

    pub(crate) fn refuses(&self) -> bool {
        self.inner().refuses.is_some()
    }

    /// Returns the spaces with rows, also while the engine refuses accesses: for checks, which see the disk.
    pub(crate) fn spaces_on_disk(&self) -> Vec<PlacementId> {
        spaces_of(&self.inner().rows)
    }

    fn opened(&self) -> Result<MutexGuard<'_, Inner>, EngineError> {
        let inner = self.inner();
        if inner.refuses.is_some() { Err(refusal()) } else { Ok(inner) }
    }

    /// Simulates a power loss, or a kill during a write: any part of the unsynced data is lost, in any order.
    pub(crate) fn crash(&self, random: &mut Random) {
        let mut inner = self.inner();
        for change in std::mem::take(&mut inner.unsynced) {
            if random.permille(500) {
                put(&mut inner.durable, &change);
            }
        }
        inner.rows = inner.durable.clone();
    }
}

/// Returns whether an engine that refuses others answers reads of this row: none, all, or a part of the rows.
fn is_in_memory(number: u64, space: PlacementId, key: &[u8]) -> bool {
    let mixed =
        key.iter().fold(number ^ space.get(), |mixed, byte| (mixed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    Random::new(mixed).below(4) < number % 5
}

fn spaces_of(rows: &Rows) -> Vec<PlacementId> {
    let mut spaces: Vec<PlacementId> = rows.keys().map(|(space, _)| *space).collect();
    spaces.dedup();
    spaces
}

fn put(rows: &mut Rows, change: &Change) {
    let key = (change.space, change.key.clone());
    match &change.value {
        Some(value) => rows.insert(key, value.clone()),
        None => rows.remove(&key),
    };
}

impl Engine for SimEngine {
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let inner = self.inner();
        if inner.refuses.is_some_and(|number| !is_in_memory(number, space, key)) {
            return Err(refusal());
        }
        Ok(inner.rows.get(&(space, Bytes::copy_from_slice(key))).cloned())
    }

    fn page(
        &self,
        space: PlacementId,
        keys: KeyBounds<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError> {
        Ok(page_of(&self.opened()?.rows, space, keys, order, limit))
    }

    fn write(&self, changes: &[Change]) -> Result<(), EngineError> {
        let mut inner = self.opened()?;
        for change in changes {
            archon_kv::engine::check_size(&change.key, change.value.as_deref())?;
            put(&mut inner.rows, change);
            inner.unsynced.push(change.clone());
        }
        Ok(())
    }

    fn clear_range(&self, space: PlacementId, keys: KeyBounds<'_>, rows_max: usize) -> Result<ClearStep, EngineError> {
        let mut inner = self.opened()?;
        let (removed, cleared) = cleared_of(&inner.rows, space, keys, rows_max);
        for key in removed {
            let change = Change { space, key, value: None };
            put(&mut inner.rows, &change);
            inner.unsynced.push(change);
        }
        Ok(cleared)
    }

    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
        Ok(spaces_of(&self.opened()?.rows))
    }

    fn sync(&self) -> Result<(), EngineError> {
        let mut inner = self.opened()?;
        for change in std::mem::take(&mut inner.unsynced) {
            put(&mut inner.durable, &change);
        }
        Ok(())
    }
}
