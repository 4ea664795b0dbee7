//! Reads of an LSM tree beside its flushes and compactions. The library syncs files while it holds the lock that its own
//! reads take, so reads would wait for the disk.

use lsm_tree::table::filter::standard_bloom::Builder;
use lsm_tree::{AbstractTree, AnyTree, InternalValue, SeqNo, Slice, Tree};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::ops::Bound;
use std::sync::Arc;

/// Reads see every write.
const LATEST: SeqNo = SeqNo::MAX;

/// Keys between two bounds.
pub(super) type KeySpan = (Bound<Vec<u8>>, Bound<Vec<u8>>);
/// Rows in order of key, without removed ones.
pub(super) type Rows = Box<dyn DoubleEndedIterator<Item = lsm_tree::Result<InternalValue>>>;

/// Look-up of the value of a key.
type Get = dyn Fn(&[u8]) -> lsm_tree::Result<Option<Slice>> + Send + Sync;

/// Memtable and tables of a tree at one time. The library does not export the type of such a state.
struct TreeState {
    get: Box<Get>,
    range: Box<dyn Fn(&KeySpan) -> Rows + Send + Sync>,
}

/// State of a tree for readers.
///
/// Rows written to the memtable appear in it. After a change of the tables it is refreshed: by a flush before the next row
/// is written, and by a compaction before the replaced tables are removed. Until then the former state has the same rows.
pub(super) struct ReadView {
    tree: AnyTree,
    state: RwLock<Arc<TreeState>>,
    /// Held while tables are written by a flush or a bulk ingest, and during a refresh: in the middle of a flush a state would
    /// have its rows in two places.
    table_writes: Mutex<()>,
}

impl ReadView {
    pub(super) fn new(tree: &AnyTree) -> Self {
        let state = RwLock::new(Arc::new(TreeState::of(tree)));
        Self { tree: tree.clone(), state, table_writes: Mutex::default() }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// The library's, if a table cannot be read.
    pub(super) fn get(&self, key: &[u8]) -> lsm_tree::Result<Option<Slice>> {
        (self.state().get)(key)
    }

    /// Returns the rows of some keys.
    pub(super) fn range(&self, keys: &KeySpan) -> Rows {
        (self.state().range)(keys)
    }

    /// Runs a flush or a bulk ingest, and shows its tables to readers. After a failed flush they see the memtable that was to
    /// be written.
    ///
    /// # Errors
    /// The error of `write`.
    pub(super) fn write_tables<T, E>(&self, write: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let writes = self.table_writes.lock();
        let written = write();
        self.refresh_during(&writes);
        written
    }

    /// Shows the tables of a compaction to readers.
    pub(super) fn refresh(&self) {
        self.refresh_during(&self.pause_writes());
    }

    /// Waits for a flush or a bulk ingest in progress, and keeps others from beginning.
    pub(super) fn pause_writes(&self) -> MutexGuard<'_, ()> {
        self.table_writes.lock()
    }

    fn refresh_during(&self, _writes: &MutexGuard<'_, ()>) {
        let state = Arc::new(TreeState::of(&self.tree));
        let former = std::mem::replace(&mut *self.state.write(), state);
        // Without the lock: it may be the last user of replaced tables, and removes their files.
        drop(former);
    }

    fn state(&self) -> Arc<TreeState> {
        Arc::clone(&self.state.read())
    }
}

impl TreeState {
    /// Returns the present state of a tree. A compaction that ends between the two looks at the tree changes no row.
    fn of(tree: &AnyTree) -> Self {
        let state = tree.get_version_history_lock().latest_version();
        let (memtable, tables) = (Arc::clone(&state.active_memtable), tree.current_version());
        let range =
            move |keys: &KeySpan| -> Rows { Box::new(Tree::create_internal_range(state.clone(), keys, LATEST, None)) };
        if tree.sealed_memtable_count() > 0 {
            // The memtable of a failed flush is not accessible on its own.
            let all = range.clone();
            let get = move |key: &[u8]| -> lsm_tree::Result<Option<Slice>> {
                let found = all(&(Bound::Included(key.to_vec()), Bound::Included(key.to_vec()))).next();
                Ok(found.transpose()?.map(|row| row.value))
            };
            return Self { get: Box::new(get), range: Box::new(range) };
        }
        // As the library does it: from the newest run to the oldest.
        let get = move |key: &[u8]| -> lsm_tree::Result<Option<Slice>> {
            if let Some(found) = memtable.get(key, LATEST) {
                return Ok(value_of(found));
            }
            let hash = Builder::get_hash(key);
            let runs = tables.iter_levels().flat_map(|level| level.iter());
            for table in runs.filter_map(|run| run.get_for_key(key)) {
                if let Some(found) = table.get(key, LATEST, hash)? {
                    return Ok(value_of(found));
                }
            }
            Ok(None)
        };
        Self { get: Box::new(get), range: Box::new(range) }
    }
}

/// Returns the value of a row; none of a removed one.
fn value_of(found: InternalValue) -> Option<Slice> {
    (!found.is_tombstone()).then_some(found.value)
}
