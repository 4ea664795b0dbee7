//! Engine on fjall; the only file that names it.
//!
//! One keyspace for all placements, with keys `placement (8, big-endian) ‖ row key`, as in the engine on sled. A write
//! is one batch, which fjall's journal makes whole or absent, so values need no chunks: readers see one value or the
//! other. Large values stay in the tree: fjall's separate files for them would need their own garbage collection.
//!
//! The database is in a directory of its own inside the engine's. It is created under another name and renamed, because
//! fjall does not open a database after an interrupted creation.

use super::disk_space::DiskSpace;
use super::journal::cut_torn_end;
use super::open::EngineConfig;
use super::{Between, Change, Cleared, Engine, EngineError, Page, PageLimit, Row, check_size, is_empty_range, next_in};
use archon_types::{DiskFull, PlacementId, ScanOrder};
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const DATABASE_DIRECTORY: &str = "fjall";
const UNFINISHED_DIRECTORY: &str = "fjall.new";
/// Held by the process that has the database open.
const LOCK_FILE: &str = "lock";
const KEYSPACE: &str = "rows";
const SPACE_BYTES: usize = 8;
/// Upper bound on fjall's memtable, in bytes, or half of the cache; it is then flushed to a table.
const MEMTABLE_BYTES_MAX: u64 = 32 * 1024 * 1024;
const MEMTABLE_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// Disk space that the journals may take before tables are flushed to remove them.
const JOURNALS_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// One flushes while the other compacts.
const WORKERS: usize = 2;
/// Open tables; far below a process's usual limit of 1,024 descriptors.
const FILES_OPEN_MAX: usize = 256;
/// Free bytes below which nothing more is written: a compaction writes new tables before the old ones go.
const FREE_BYTES_MIN: u64 = 256 * 1024 * 1024;
/// Interval between attempts to take a held lock.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// An engine on fjall 3.
pub struct FjallEngine {
    database: Database,
    rows: Keyspace,
    directory: PathBuf,
    disk: DiskSpace,
    /// Known empty range of each space being cleared: a scan from the beginning would pass every removed row again.
    cleared: Mutex<BTreeMap<PlacementId, Empty>>,
}

/// There is no row from the one key to the other, both included.
struct Empty {
    from: Vec<u8>,
    upto: Vec<u8>,
}

impl std::fmt::Debug for FjallEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallEngine").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl FjallEngine {
    /// Opens or creates the engine in `directory`, without checking its format: see
    /// [`open_or_quarantine`](super::open_or_quarantine).
    pub(super) fn open(directory: &Path, config: &EngineConfig) -> Result<Self, EngineError> {
        let whole = directory.join(DATABASE_DIRECTORY);
        if !whole.try_exists().map_err(io(directory, "look at its database"))? {
            create(directory, config)?;
        }
        let (database, rows) = open_database(directory, &whole, config)?;
        let disk = DiskSpace::new(directory, FREE_BYTES_MIN);
        let engine = Self { database, rows, directory: directory.to_owned(), disk, cleared: Mutex::default() };
        // The reserve is taken up while there is space for it; the flusher checks again before it writes.
        let _ = engine.check_disk();
        Ok(engine)
    }

    fn fail(&self, what: &'static str) -> impl Fn(fjall::Error) -> EngineError + '_ {
        move |error| convert(&self.directory, what, error)
    }

    fn first_key(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<Option<Bytes>, EngineError> {
        let Some(found) = self.rows.range((start, end)).next() else { return Ok(None) };
        Ok(Some(found.key().map_err(self.fail("read rows"))?.into()))
    }
}

/// Creates an empty database under another name, and renames it once it is whole.
fn create(directory: &Path, config: &EngineConfig) -> Result<(), EngineError> {
    let unfinished = directory.join(UNFINISHED_DIRECTORY);
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io(directory, "remove an unfinished database")(error));
        }
        _ => {}
    }
    drop(open_database(directory, &unfinished, config)?);
    let database = directory.join(DATABASE_DIRECTORY);
    archon_durable::rename(&unfinished, &database).map_err(io(directory, "name its database"))
}

fn open_database(directory: &Path, at: &Path, config: &EngineConfig) -> Result<(Database, Keyspace), EngineError> {
    let give_up = Instant::now() + config.lock_wait;
    let open = || {
        cut_journal(at)?;
        let database = Database::builder(at)
            .cache_size(config.cache_bytes)
            .worker_threads(WORKERS)
            .max_cached_files(Some(FILES_OPEN_MAX))
            .max_journaling_size(JOURNALS_BYTES_MAX)
            .open()?;
        let memtable_bytes = (config.cache_bytes / 2).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes);
        let rows = database.keyspace(KEYSPACE, options)?;
        database.persist(PersistMode::SyncAll)?;
        Ok((database, rows))
    };
    loop {
        // A damaged file makes fjall panic in places; that must not end the process before it could be set aside.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(open)) {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(fjall::Error::Locked)) if Instant::now() < give_up => std::thread::sleep(LOCK_POLL),
            Ok(Err(error)) => return Err(convert(directory, "open", error)),
            Err(_) => {
                let what = "opening it panicked".to_owned();
                return Err(EngineError::Damaged { directory: directory.to_owned(), what });
            }
        }
    }
}

/// Cuts the torn end of the journal, unless the database is in use.
fn cut_journal(database: &Path) -> Result<(), fjall::Error> {
    let lock = match File::options().read(true).write(true).open(database.join(LOCK_FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(fjall::Error::Locked),
        Err(TryLockError::Error(error)) => return Err(error.into()),
        Ok(()) => {}
    }
    let torn_bytes = cut_torn_end(database)?;
    if torn_bytes > 0 {
        tracing::info!(bytes = torn_bytes, "cut the torn end of the engine's journal");
    }
    Ok(())
}

impl Engine for FjallEngine {
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.rows.get(row_key(space, key)).map_err(self.fail("read a row"))?;
        Ok(found.map(Bytes::from))
    }

    fn page(
        &self,
        space: PlacementId,
        keys: Between<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError> {
        let (from, end) = bounds(space, keys);
        let mut page = Page::default();
        let start = Bound::Included(from);
        if is_empty_range(&start, &end) {
            return Ok(page);
        }
        let mut bytes = 0;
        let mut rows = self.rows.range((start, end));
        while let Some(found) = next_in(&mut rows, order) {
            let (full_key, value) = found.into_inner().map_err(self.fail("read rows"))?;
            let full_key = Bytes::from(full_key);
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
        let mut cleared = self.cleared.lock();
        let mut batch = self.database.batch();
        for change in changes {
            // The known empty range may no longer be empty.
            cleared.remove(&change.space);
            check_size(&change.key, change.value.as_deref())?;
            let key = row_key(change.space, &change.key);
            match &change.value {
                // A copy: a slice would keep the whole received message alive.
                Some(value) => batch.insert(&self.rows, key, &value[..]),
                None => batch.remove(&self.rows, key),
            }
        }
        batch.commit().map_err(self.fail("write rows"))
    }

    fn ingests(&self) -> bool {
        true
    }

    /// Writes tables at once: not the journal first, then a memtable, and a table after all. Earlier writes go to
    /// tables as well, and these rows have higher sequence numbers, so that a replayed journal does not restore older
    /// ones.
    fn ingest(&self, rows: &[Change]) -> Result<(), EngineError> {
        let mut cleared = self.cleared.lock();
        let mut tables = self.rows.start_ingestion().map_err(self.fail("begin tables"))?;
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
    }

    fn clear_range(&self, space: PlacementId, keys: Between<'_>, rows_max: usize) -> Result<Cleared, EngineError> {
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
            let mut batch = self.database.batch();
            for found in self.rows.range((first, end.clone())).take(rows_max) {
                let key = found.key().map_err(self.fail("read rows"))?;
                upto = Some(key.to_vec());
                batch.remove(&self.rows, key);
                removed += 1;
            }
            batch.commit().map_err(self.fail("remove rows"))?;
        }
        let rest = start(&upto);
        let done = is_empty_range(&rest, &end) || self.first_key(rest, end)?.is_none();
        if let Some(upto) = upto.filter(|_| !done) {
            cleared.insert(space, Empty { from, upto });
        }
        Ok(Cleared { removed, done })
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
        self.database.persist(PersistMode::SyncAll).map_err(self.fail("sync"))
    }

    fn check_disk(&self) -> Result<(), DiskFull> {
        self.disk.look()
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
fn bounds(space: PlacementId, (from, to): Between<'_>) -> (Vec<u8>, Bound<Vec<u8>>) {
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

fn io(directory: &Path, what: &'static str) -> impl Fn(std::io::Error) -> EngineError {
    let directory = directory.to_owned();
    move |source| EngineError::Io { directory: directory.clone(), what, source }
}

fn convert(directory: &Path, what: &'static str, error: fjall::Error) -> EngineError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    let refused =
        |source: &std::io::Error| !matches!(source.kind(), InvalidData | InvalidInput | NotFound | UnexpectedEof);
    match error {
        fjall::Error::Io(source) if refused(&source) => io(directory, what)(source),
        fjall::Error::Storage(fjall::LsmError::Io(source)) if refused(&source) => io(directory, what)(source),
        // A background write failed, or another process has the files: that is no evidence of damage.
        error @ (fjall::Error::Poisoned | fjall::Error::Locked) => {
            io(directory, what)(std::io::Error::other(error.to_string()))
        }
        other => EngineError::Damaged { directory: directory.to_owned(), what: format!("could not {what}: {other}") },
    }
}
