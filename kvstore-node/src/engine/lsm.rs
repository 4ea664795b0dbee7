//! Engine on the LSM tree of fjall, the crate `lsm-tree`, with its [compactor](super::compactor), its
//! [reads](super::read_view) and the [check of its tables](super::table_check).
//!
//! One tree for all placements, with keys `placement (8, big-endian) ‖ row key`, as in the engine on sled. Rows go to the
//! tree's memtable, and a sync writes the memtable to a table. There is no journal: the node's log has every row until
//! a sync, so the engine writes each row once. After a crash the tables of the last sync are there, whole. Large values
//! stay in the tree: separate files for them would need a garbage collection of their own.
//!
//! The tree is in a directory of its own inside the engine's. It is created under another name and renamed, so that a
//! tree without its list of tables is damage and not an interrupted creation.

use super::compactor::{Compactor, CompactorHooks, RUNS_LIMIT, StopFlag};
use super::damage::{PanicNote, check_damage, note_damage};
use super::disk_space::{DiskSpace, RESERVE_BYTES, disk_full, free_bytes, is_full};
use super::list_check::check_list;
use super::lsm_error::{convert, io};
use super::open::EngineConfig;
use super::read_view::ReadView;
use super::table_check::check_after_panic;
use super::table_files::release_tables;
use super::{
    Change, ClearStep, Engine, EngineError, KeyBounds, Page, PageLimit, Row, check_size, is_empty_range, next_in,
};
use archon_durable::{Lock, LockError};
use archon_types::{DiskFull, PlacementId, ScanOrder};
use bytes::Bytes;
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, DescriptorTable, InternalValue, SequenceNumberCounter};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TREE_DIRECTORY: &str = "tree";
const UNFINISHED_DIRECTORY: &str = "tree.new";
const SPACE_BYTES: usize = 8;
/// Upper bound on the memtable, in bytes, or a quarter of the cache; it is then written to a table.
const MEMTABLE_BYTES_MAX: u64 = 32 * 1024 * 1024;
const MEMTABLE_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Open tables; far below a process's usual limit of 1,024 descriptors.
const FILES_OPEN_MAX: usize = 256;
/// Free bytes, beside the reserve, below which nothing more is written: enough for the memtable and a bulk ingest.
const FREE_BYTES_MIN: u64 = MEMTABLE_BYTES_MAX + 16 * 1024 * 1024;
/// Part of the cache that always remains for blocks.
const BLOCK_CACHE_BYTES_MIN: u64 = 1024 * 1024;
/// Bytes of the tree per second of the interval between syncs. Four syncs lead to a merge, which rewrites up to the whole
/// of a small tree: with this rate that is 2 MiB per second.
const SYNCED_BYTES_PER_SECOND: u64 = 8 * 1024 * 1024;
const SYNC_SECONDS_MAX: u64 = 30;
/// Interval between attempts to take a held lock.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// An engine on the LSM tree of fjall.
pub struct LsmEngine {
    compactor: Compactor,
    tree: AnyTree,
    /// Number of the next write.
    seqno: SequenceNumberCounter,
    memtable_bytes_max: u64,
    directory: PathBuf,
    disk: DiskSpace,
    view: Arc<ReadView>,
    /// Known empty range of each space being cleared: a scan from the beginning would pass every removed row again.
    cleared: Mutex<BTreeMap<PlacementId, Empty>>,
    _lock: Lock,
}

/// There is no row from the one key to the other, both included.
struct Empty {
    from: Vec<u8>,
    upto: Vec<u8>,
}

impl std::fmt::Debug for LsmEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LsmEngine").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl LsmEngine {
    /// Opens or creates the engine in `directory`, without checking its format: see
    /// [`open_or_quarantine`](super::open_or_quarantine).
    pub(super) fn open(directory: &Path, config: &EngineConfig) -> Result<Self, EngineError> {
        Self::open_with(directory, config, compactor_hooks(directory))
    }

    pub(super) fn open_with(
        directory: &Path,
        config: &EngineConfig,
        hooks: CompactorHooks,
    ) -> Result<Self, EngineError> {
        let lock = lock(directory, config.lock_wait)?;
        check_damage(directory)?;
        let whole = directory.join(TREE_DIRECTORY);
        if !whole.try_exists().map_err(io(directory, "look at its tree"))? {
            create(directory, config)?;
        }
        remove_temporary(&whole).map_err(io(directory, "remove unfinished files"))?;
        let stop = StopFlag::default();
        let (tree, seqno) = open_tree(directory, &whole, config, &stop)?;
        check_after_panic(directory, &tree)?;
        let view = Arc::new(ReadView::new(&tree));
        let compactor = Compactor::start(&tree, &seqno, &view, stop, hooks);
        let engine = Self {
            compactor: compactor.map_err(io(directory, "start its compactor"))?,
            tree,
            seqno,
            memtable_bytes_max: memtable_bytes_max(config),
            directory: directory.to_owned(),
            disk: DiskSpace::new(directory, FREE_BYTES_MIN),
            view,
            cleared: Mutex::default(),
            _lock: lock,
        };
        // The reserve is taken up while there is space for it; the flusher checks again before it writes.
        let _ = engine.check_disk();
        Ok(engine)
    }

    #[cfg(test)]
    pub(super) const fn tree(&self) -> &AnyTree {
        &self.tree
    }

    /// Notes a panic of the library in the operation `what`.
    fn watch(&self, what: &'static str) -> PanicNote<'_> {
        PanicNote::new(&self.directory, what)
    }

    fn fail(&self, what: &'static str) -> impl Fn(lsm_tree::Error) -> EngineError + '_ {
        move |error| convert(&self.directory, what, error)
    }

    fn first_key(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<Option<Bytes>, EngineError> {
        let _watch = self.watch("read rows");
        let Some(found) = self.view.range(&(start, end)).next() else { return Ok(None) };
        Ok(Some(found.map_err(self.fail("read rows"))?.key.user_key.into()))
    }

    /// Puts rows into the memtable; `None` removes one. A full memtable is written to a table.
    fn insert(&self, rows: impl Iterator<Item = (Vec<u8>, Option<Bytes>)>) -> Result<(), EngineError> {
        let _watch = self.watch("write rows");
        let seqno = self.seqno.next();
        for (key, value) in rows {
            match value {
                // A copy: a slice would keep the whole received message alive.
                Some(value) => self.tree.insert(key, &value[..], seqno),
                None => self.tree.remove(key, seqno),
            };
        }
        match self.tree.active_memtable().size() >= self.memtable_bytes_max {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the memtable to a table, durably.
    fn flush(&self) -> Result<(), EngineError> {
        let _watch = self.watch("write a table");
        self.check_compactor()?;
        // No earlier version of a row is needed: a reader keeps the memtable that it began with.
        self.write_tables(|| self.tree.flush_active_memtable(self.seqno.get()).map_err(self.fail("write a table")))
    }

    /// Returns an error if compactions have ended, or have not kept up by far.
    fn check_compactor(&self) -> Result<(), EngineError> {
        self.compactor.check()?;
        let runs = self.tree.l0_run_count();
        if runs >= RUNS_LIMIT {
            let source = std::io::Error::other(format!("{runs} runs of tables wait to be merged"));
            return Err(io(&self.directory, "write a table")(source));
        }
        Ok(())
    }

    /// Runs a flush or a bulk ingest. If it meets a full disk beside a compaction, it runs again without one.
    fn write_tables(&self, mut write: impl FnMut() -> Result<(), EngineError>) -> Result<(), EngineError> {
        let is_lack = |error: &EngineError| matches!(error, EngineError::Io { source, .. } if is_full(source.kind()));
        let first_table = self.tree.next_table_id();
        let may_repeat = || self.compactor.give_way(first_table);
        match self.view.write_tables(&mut write) {
            Err(error) if is_lack(&error) && may_repeat() => self.view.write_tables(write),
            written => written,
        }
        .map_err(|error| self.end_by(error))?;
        release_tables(&self.tree, &self.seqno).map_err(self.fail("remove old tables"))?;
        self.compactor.wake();
        Ok(())
    }

    /// Returns the error of a failed write of tables, after which nothing more is written: damage met by it is noted for the
    /// next start, as it concerns the rows of all replicas and not of the one whose work led to it.
    fn end_by(&self, error: EngineError) -> EngineError {
        if !error.is_damage() {
            return error;
        }
        note_damage(&error);
        io(&self.directory, "write a table")(std::io::Error::other(error.to_string()))
    }
}

fn memtable_bytes_max(config: &EngineConfig) -> u64 {
    (config.cache_bytes / 4).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX)
}

/// Removes unfinished temporary files; the library leaves them.
fn remove_temporary(tree: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(tree)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(".tmp") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Locks the engine in `directory` for this user, which waits for another one that is about to close it.
fn lock(directory: &Path, wait: Duration) -> Result<Lock, EngineError> {
    let give_up = Instant::now() + wait;
    loop {
        let source = match Lock::take(directory) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held { .. }) if Instant::now() < give_up => {
                std::thread::sleep(LOCK_POLL);
                continue;
            }
            Err(held @ LockError::Held { .. }) => std::io::Error::other(held.to_string()),
            Err(LockError::Io { source, .. }) => source,
        };
        return Err(io(directory, "lock it")(source));
    }
}

fn compactor_hooks(directory: &Path) -> CompactorHooks {
    let disk = directory.to_owned();
    CompactorHooks {
        directory: directory.to_owned(),
        spare_bytes: Box::new(move || {
            free_bytes(&disk).map_or(u64::MAX, |free| free.saturating_sub(FREE_BYTES_MIN + RESERVE_BYTES))
        }),
    }
}

/// Creates an empty tree under another name, and renames it once it is whole.
fn create(directory: &Path, config: &EngineConfig) -> Result<(), EngineError> {
    let unfinished = directory.join(UNFINISHED_DIRECTORY);
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io(directory, "remove an unfinished tree")(error));
        }
        _ => {}
    }
    fs::create_dir(&unfinished).map_err(io(directory, "create its tree"))?;
    drop(
        build_tree(&unfinished, config, &StopFlag::default())
            .map_err(|error| convert(directory, "create its tree", error))?,
    );
    archon_durable::rename(&unfinished, &directory.join(TREE_DIRECTORY)).map_err(io(directory, "name its tree"))
}

fn open_tree(
    directory: &Path,
    at: &Path,
    config: &EngineConfig,
    stop: &StopFlag,
) -> Result<(AnyTree, SequenceNumberCounter), EngineError> {
    // Without a list, opening it would create an empty tree.
    check_list(at).map_err(|error| convert(directory, "read the list of its tables", error))?;
    // A damaged file makes the library panic in places; that must not end the process before it could be set aside.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| build_tree(at, config, stop))) {
        Ok(opened) => opened.map_err(|error| convert(directory, "open", error)),
        Err(_) => Err(EngineError::Damaged { directory: directory.to_owned(), what: "opening it panicked".to_owned() }),
    }
}

fn build_tree(at: &Path, config: &EngineConfig, stop: &StopFlag) -> lsm_tree::Result<(AnyTree, SequenceNumberCounter)> {
    let (seqno, visible) = (SequenceNumberCounter::default(), SequenceNumberCounter::default());
    // One memtable gathers rows while the previous one is written.
    let cache_bytes = config.cache_bytes.saturating_sub(2 * memtable_bytes_max(config)).max(BLOCK_CACHE_BYTES_MIN);
    let settings = Config::new(at, seqno.clone(), visible.clone())
        .use_cache(Arc::new(Cache::with_capacity_bytes(cache_bytes)))
        .use_descriptor_table(Some(Arc::new(DescriptorTable::new(FILES_OPEN_MAX))));
    let tree = stop.interrupts(settings).open()?;
    let next = tree.get_highest_seqno().map_or(1, |highest| highest + 1);
    seqno.set(next);
    visible.set(next);
    Ok((tree, seqno))
}

impl Engine for LsmEngine {
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let _watch = self.watch("read a row");
        let found = self.view.get(&row_key(space, key)).map_err(self.fail("read a row"))?;
        Ok(found.map(Bytes::from))
    }

    fn page(
        &self,
        space: PlacementId,
        keys: KeyBounds<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError> {
        let _watch = self.watch("read rows");
        let (from, end) = bounds(space, keys);
        let mut page = Page::default();
        let start = Bound::Included(from);
        if is_empty_range(&start, &end) {
            return Ok(page);
        }
        let mut bytes = 0;
        let mut rows = self.view.range(&(start, end));
        while let Some(found) = next_in(&mut rows, order) {
            let InternalValue { key: full_key, value } = found.map_err(self.fail("read rows"))?;
            let full_key = Bytes::from(full_key.user_key);
            if full_key.len() < SPACE_BYTES {
                let what = format!("a key of {} bytes names no space", full_key.len());
                return Err(EngineError::Damaged { directory: self.directory.clone(), what });
            }
            let key = full_key.slice(SPACE_BYTES..);
            let size = key.len() + value.len();
            if limit.is_full(page.rows.len(), bytes, size) {
                page.more = true;
                break;
            }
            bytes += size;
            page.rows.push(Row { key, value: value.into() });
        }
        Ok(page)
    }

    fn write(&self, changes: &[Change]) -> Result<(), EngineError> {
        for change in changes {
            check_size(&change.key, change.value.as_deref())?;
        }
        let mut cleared = self.cleared.lock();
        for change in changes {
            // The known empty range may no longer be empty.
            cleared.remove(&change.space);
        }
        self.insert(changes.iter().map(|change| (row_key(change.space, &change.key), change.value.clone())))
    }

    fn writes_tables(&self) -> bool {
        true
    }

    fn has_room(&self) -> Result<bool, EngineError> {
        self.compactor.check()?;
        Ok(self.compactor.has_room())
    }

    /// A second for a small tree, up to half a minute for a large one.
    fn sync_interval(&self) -> Duration {
        Duration::from_secs((self.tree.disk_space() / SYNCED_BYTES_PER_SECOND).clamp(1, SYNC_SECONDS_MAX))
    }

    /// Writes tables at once, not a memtable first. Earlier writes go to tables as well.
    fn ingest(&self, rows: &[Change]) -> Result<(), EngineError> {
        let _watch = self.watch("add tables");
        self.check_compactor()?;
        let mut cleared = self.cleared.lock();
        self.write_tables(|| {
            let mut tables = self.tree.ingestion().map_err(self.fail("begin tables"))?;
            for change in rows {
                cleared.remove(&change.space);
                check_size(&change.key, change.value.as_deref())?;
                let key = row_key(change.space, &change.key);
                match &change.value {
                    Some(value) => tables.write(key, value.clone()),
                    None => tables.write_tombstone(key),
                }
                .map_err(self.fail("write a table"))?;
            }
            tables.finish().map_err(self.fail("add tables"))
        })
    }

    fn clear_range(&self, space: PlacementId, keys: KeyBounds<'_>, rows_max: usize) -> Result<ClearStep, EngineError> {
        let _watch = self.watch("remove rows");
        let (from, end) = bounds(space, keys);
        let mut cleared = self.cleared.lock();
        let known = cleared.remove(&space).filter(|empty| empty.from <= from && from <= empty.upto);
        let (from, mut upto) = known.map_or((from, None), |empty| (empty.from, Some(empty.upto)));
        let start = |upto: &Option<Vec<u8>>| match upto {
            Some(upto) => Bound::Excluded(upto.clone()),
            None => Bound::Included(from.clone()),
        };
        let mut removed = 0;
        let first = start(&upto);
        if !is_empty_range(&first, &end) {
            let found = self.view.range(&(first, end.clone())).take(rows_max);
            let keys = found.map(|row| row.map(|row| row.key.user_key)).collect::<Result<Vec<_>, _>>();
            let keys = keys.map_err(self.fail("read rows"))?;
            removed = keys.len();
            upto = keys.last().map(|key| key.to_vec()).or(upto);
            self.insert(keys.into_iter().map(|key| (key.to_vec(), None)))?;
        }
        let rest = start(&upto);
        let done = is_empty_range(&rest, &end) || self.first_key(rest, end)?.is_none();
        if let Some(upto) = upto.filter(|_| !done) {
            cleared.insert(space, Empty { from, upto });
        }
        Ok(ClearStep { removed, done })
    }

    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
        let mut spaces = Vec::new();
        let mut next = Some(0_u64);
        while let Some(at_least) = next {
            let Some(key) = self.first_key(Bound::Included(at_least.to_be_bytes().to_vec()), Bound::Unbounded)? else {
                break;
            };
            let Some(Ok(space)) = key.get(..SPACE_BYTES).map(<[u8; SPACE_BYTES]>::try_from) else {
                let what = format!("a key of {} bytes names no space", key.len());
                return Err(EngineError::Damaged { directory: self.directory.clone(), what });
            };
            let space = u64::from_be_bytes(space);
            spaces.push(PlacementId::new(space));
            next = space.checked_add(1);
        }
        Ok(spaces)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.flush()
    }

    fn check_disk(&self) -> Result<(), DiskFull> {
        self.disk.look()?;
        match self.compactor.lacks_bytes() {
            Some(bytes) => Err(disk_full(&self.directory, FREE_BYTES_MIN + RESERVE_BYTES + bytes)),
            None => Ok(()),
        }
    }

    fn probe_disk(&self) -> Result<(), DiskFull> {
        self.disk.probe()
    }

    fn has_space_to_spare(&self) -> bool {
        self.disk.has_some_to_spare()
    }
}

fn row_key(space: PlacementId, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(SPACE_BYTES + key.len());
    full.extend_from_slice(&space.get().to_be_bytes());
    full.extend_from_slice(key);
    full
}

/// Returns the least key of a space between two, and where they end.
fn bounds(space: PlacementId, (from, to): KeyBounds<'_>) -> (Vec<u8>, Bound<Vec<u8>>) {
    let start = match from {
        Bound::Unbounded => row_key(space, &[]),
        Bound::Included(key) => row_key(space, key),
        Bound::Excluded(key) => {
            let mut next = row_key(space, key);
            next.push(0);
            next
        }
    };
    let end = match to {
        Bound::Unbounded => space_end(space),
        key => key.map(|key| row_key(space, key)),
    };
    (start, end)
}

/// Returns the end of a space's keys.
fn space_end(space: PlacementId) -> Bound<Vec<u8>> {
    match space.get().checked_add(1) {
        Some(next) => Bound::Excluded(next.to_be_bytes().to_vec()),
        None => Bound::Unbounded,
    }
}
