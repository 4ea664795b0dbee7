//! Engine on sled; the only file that names it.
//!
//! One tree for all placements: `placement (8, big-endian) ‖ row key → tag ‖ …`. A row key begins with its kind byte,
//! so the tree is sorted by placement, kind, user key. Measured, one prefixed tree is several times faster than a tree
//! per placement. Batches are never used: sled's take a process-wide lock that every later read pays for.
//!
//! Values above [`CHUNK_BYTES`] are split, because sled moves large nodes to files that it never syncs. A value's
//! chunks are stored under `placement ‖ 0xFF ‖ row key ‖ slot ‖ number`, and its row names slot, length and checksum. A
//! new value takes the slot that the present one does not use: chunks are written first, then the row, then the old
//! chunks are removed. So a reader beside the writer sees either value, or notices the change and retries. A crash
//! between the steps can leave chunks that no row names; they only cost space, are overwritten when that key takes the
//! slot again, and are removed with the space.

use super::damage::check_damage;
use super::disk_space::{DiskSpace, is_full};
use super::durable;
use super::open::EngineConfig;
use super::{
    Change, ClearStep, Engine, EngineError, KeyBounds, Page, PageLimit, Row, check_size, is_empty_range, next_in,
};
use archon_types::{DiskFull, PlacementId, ScanOrder};
use bytes::{Bytes, BytesMut};
use crc32c::crc32c;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest value stored in one piece, and the length of each chunk of a longer one.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;
/// sled splits a leaf above 16 rows and moves nodes above a quarter of a segment to files of their own, never synced.
/// With 8 MiB a full leaf (about 20 chunks with longest keys, 1.3 MiB) and a full index node (256 longest keys, 1.1 MiB)
/// both stay below that quarter.
const SEGMENT_BYTES: usize = 8 * 1024 * 1024;
/// Kind byte of chunks, above every kind of row.
const CHUNK_KIND: u8 = archon_kv::engine::RESERVED_KIND;
/// Free bytes, beside the reserve, below which nothing more is written.
const FREE_BYTES_MIN: u64 = 32 * 1024 * 1024;
const INLINE: u8 = 0;
const CHUNKED: u8 = 1;
/// Retries of a reader while the writer changes the value.
const READ_ATTEMPTS: usize = 1_000;
const SPACE_BYTES: usize = 8;
/// Interval between attempts to take a held lock.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// An engine on sled 0.34.
pub struct SledEngine {
    database: sled::Db,
    directory: PathBuf,
    disk: DiskSpace,
    /// A write met a full disk.
    lacked_space: AtomicBool,
}

impl std::fmt::Debug for SledEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledEngine").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Row of a chunked value: its slot, length and checksum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    slot: u8,
    length: u32,
    checksum: u32,
}

impl Head {
    const BYTES: usize = 10;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = CHUNKED;
        bytes[1] = self.slot;
        bytes[2..6].copy_from_slice(&self.length.to_be_bytes());
        bytes[6..].copy_from_slice(&self.checksum.to_be_bytes());
        bytes
    }

    fn chunks(self) -> u16 {
        // The length was checked when it was written and when it was decoded.
        (self.length as usize).div_ceil(CHUNK_BYTES) as u16
    }
}

/// A stored value, decoded.
enum StoredValue {
    Inline(Bytes),
    Chunked(Head),
}

impl SledEngine {
    /// Opens or creates the engine in `directory`, without checking its format: see
    /// [`open_or_quarantine`](super::open_or_quarantine).
    pub(super) fn open(directory: &Path, config: &EngineConfig) -> Result<Self, EngineError> {
        let settings = sled::Config::new()
            .path(directory)
            .segment_size(SEGMENT_BYTES)
            .cache_capacity(config.cache_bytes)
            .mode(sled::Mode::HighThroughput)
            // The flusher decides when to flush.
            .flush_every_ms(None);
        let give_up = Instant::now() + config.lock_wait;
        let database = loop {
            // A damaged file makes sled panic in places; that must not end the process before it could be set aside.
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| settings.open())) {
                Ok(Ok(database)) => break database,
                Ok(Err(error)) if is_held(&error) && Instant::now() < give_up => std::thread::sleep(LOCK_POLL),
                Ok(Err(error)) => return Err(convert(directory, "open", error)),
                Err(_) => {
                    let what = "opening it panicked".to_owned();
                    return Err(EngineError::Damaged { directory: directory.to_owned(), what });
                }
            }
        };
        // The lock is held now: another process is not about to set the engine aside.
        check_damage(directory)?;
        let engine = Self {
            database,
            directory: directory.to_owned(),
            disk: DiskSpace::new(directory, FREE_BYTES_MIN),
            lacked_space: AtomicBool::new(false),
        };
        engine.check_durable()?;
        // The reserve is taken up while there is space for it; the flusher checks again before it writes.
        let _ = engine.check_disk();
        Ok(engine)
    }

    /// Writes a row, flushes, and checks that the sync went through our definition.
    fn check_durable(&self) -> Result<(), EngineError> {
        // The empty key is outside every space.
        let before = durable::syncs();
        let fail = |error| convert(&self.directory, "write its check row", error);
        self.database.insert([], &[INLINE]).map_err(fail)?;
        self.database.remove([]).map_err(fail)?;
        self.database.flush().map_err(fail)?;
        if durable::is_needed() && durable::syncs() == before {
            return Err(EngineError::NotDurable {
                directory: self.directory.clone(),
                what: "sync_file_range is the C library's, not the one that calls fdatasync",
            });
        }
        Ok(())
    }

    fn fail(&self, what: &'static str) -> impl Fn(sled::Error) -> EngineError + '_ {
        move |error| self.judge(convert(&self.directory, what, error))
    }

    fn damaged(&self, what: impl Into<String>) -> EngineError {
        self.judge(EngineError::Damaged { directory: self.directory.clone(), what: what.into() })
    }

    /// Returns the error, not as damage once a write met a full disk: in memory such a write may be there in part, while
    /// the disk has what was synced.
    fn judge(&self, error: EngineError) -> EngineError {
        if let EngineError::Io { source, .. } = &error
            && is_full(source.kind())
        {
            self.lacked_space.store(true, Ordering::Release);
        }
        match error {
            EngineError::Damaged { directory, what } if self.lacked_space.load(Ordering::Acquire) => {
                let source = std::io::Error::new(std::io::ErrorKind::StorageFull, what);
                EngineError::Io { directory, what: "go on after a full disk", source }
            }
            error => error,
        }
    }

    fn decode(&self, stored: &[u8]) -> Result<StoredValue, EngineError> {
        match stored {
            [INLINE, value @ ..] => Ok(StoredValue::Inline(Bytes::copy_from_slice(value))),
            [CHUNKED, slot @ (0 | 1), a, b, c, d, e, f, g, h] => {
                let head = Head {
                    slot: *slot,
                    length: u32::from_be_bytes([*a, *b, *c, *d]),
                    checksum: u32::from_be_bytes([*e, *f, *g, *h]),
                };
                if head.length as usize <= CHUNK_BYTES || head.length as usize > usize::from(u16::MAX) * CHUNK_BYTES {
                    return Err(self.damaged(format!("a row names chunks of {} bytes in all", head.length)));
                }
                Ok(StoredValue::Chunked(head))
            }
            _ => Err(self.damaged(format!("a row of {} bytes has no known shape", stored.len()))),
        }
    }

    /// Assembles a chunked value; `None` if it was changed meanwhile.
    fn assemble(&self, space: PlacementId, key: &[u8], head: Head) -> Result<Option<Bytes>, EngineError> {
        let mut value = BytesMut::with_capacity(head.length as usize);
        for number in 0..head.chunks() {
            let chunk =
                self.database.get(chunk_key(space, key, head.slot, number)).map_err(self.fail("read a chunk"))?;
            let Some(chunk) = chunk else { return Ok(None) };
            value.extend_from_slice(&chunk);
        }
        let whole = value.len() == head.length as usize && crc32c(&value) == head.checksum;
        Ok(whole.then(|| value.freeze()))
    }

    fn remove_chunks(&self, space: PlacementId, key: &[u8], slot: u8, from: u16) -> Result<(), EngineError> {
        for number in from..=u16::MAX {
            let removed = self.database.remove(chunk_key(space, key, slot, number));
            if removed.map_err(self.fail("remove a chunk"))?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Writes the chunks of a large value beside the present one. Returns the row that would replace the present one.
    pub(super) fn stage(&self, space: PlacementId, key: &[u8], value: &[u8]) -> Result<Head, EngineError> {
        let too_large = || EngineError::TooLarge { key_bytes: key.len(), value_bytes: value.len() };
        let length = u32::try_from(value.len()).map_err(|_| too_large())?;
        let present = self.database.get(row_key(space, key)).map_err(self.fail("read a row"))?;
        let slot = match present.map(|present| self.decode(&present)).transpose()? {
            Some(StoredValue::Chunked(head)) => 1 - head.slot,
            Some(StoredValue::Inline(_)) | None => 0,
        };
        for (number, chunk) in (0..).zip(value.chunks(CHUNK_BYTES)) {
            self.database.insert(chunk_key(space, key, slot, number), chunk).map_err(self.fail("write a chunk"))?;
        }
        let head = Head { slot, length, checksum: crc32c(value) };
        // Remains of a torn, longer write in this slot.
        self.remove_chunks(space, key, slot, head.chunks())?;
        Ok(head)
    }

    fn put(&self, space: PlacementId, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let row = row_key(space, key);
        let (before, stored) = if value.len() <= CHUNK_BYTES {
            let mut stored = Vec::with_capacity(1 + value.len());
            stored.push(INLINE);
            stored.extend_from_slice(value);
            (self.database.insert(row, stored).map_err(self.fail("write a row"))?, None)
        } else {
            let head = self.stage(space, key, value)?;
            (self.database.insert(row, &head.encode()).map_err(self.fail("write a row"))?, Some(head.slot))
        };
        self.remove_old(space, key, before, stored)
    }

    fn remove(&self, space: PlacementId, key: &[u8]) -> Result<(), EngineError> {
        let before = self.database.remove(row_key(space, key)).map_err(self.fail("remove a row"))?;
        self.remove_old(space, key, before, None)
    }

    /// Removes the chunks of the value that was just replaced.
    fn remove_old(
        &self,
        space: PlacementId,
        key: &[u8],
        before: Option<sled::IVec>,
        in_use: Option<u8>,
    ) -> Result<(), EngineError> {
        let Some(before) = before else { return Ok(()) };
        if before.first() != Some(&CHUNKED) {
            return Ok(());
        }
        if let StoredValue::Chunked(head) = self.decode(&before)?
            && in_use != Some(head.slot)
        {
            self.remove_chunks(space, key, head.slot, 0)?;
        }
        Ok(())
    }

    /// Reads the row's value, retrying while the writer changes it.
    fn read(
        &self,
        space: PlacementId,
        key: &[u8],
        mut stored: Option<sled::IVec>,
    ) -> Result<Option<Bytes>, EngineError> {
        for attempt in 0..READ_ATTEMPTS {
            if attempt > 0 {
                std::thread::yield_now();
                stored = self.database.get(row_key(space, key)).map_err(self.fail("read a row"))?;
            }
            let Some(present) = stored.take() else { return Ok(None) };
            match self.decode(&present)? {
                StoredValue::Inline(value) => return Ok(Some(value)),
                StoredValue::Chunked(head) => {
                    if let Some(value) = self.assemble(space, key, head)? {
                        return Ok(Some(value));
                    }
                }
            }
        }
        Err(self.damaged(format!("chunks of a value of placement {space} are missing or do not match its checksum")))
    }
}

impl Engine for SledEngine {
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let stored = self.database.get(row_key(space, key)).map_err(self.fail("read a row"))?;
        self.read(space, key, stored)
    }

    fn page(
        &self,
        space: PlacementId,
        keys: KeyBounds<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError> {
        let Some(bounds) = bounds(space, keys) else { return Ok(Page::default()) };
        let mut page = Page::default();
        let mut bytes = 0;
        let mut rows = self.database.range::<Vec<u8>, _>(bounds);
        while let Some(found) = next_in(&mut rows, order) {
            let (full_key, stored) = found.map_err(self.fail("read rows"))?;
            let key = full_key.get(SPACE_BYTES..).unwrap_or_default();
            let Some(value) = self.read(space, key, Some(stored))? else { continue };
            let size = key.len() + value.len();
            if limit.is_full(page.rows.len(), bytes, size) {
                page.more = true;
                break;
            }
            bytes += size;
            page.rows.push(Row { key: Bytes::copy_from_slice(key), value });
        }
        Ok(page)
    }

    fn write(&self, changes: &[Change]) -> Result<(), EngineError> {
        for change in changes {
            check_size(&change.key, change.value.as_deref())?;
            match &change.value {
                Some(value) => self.put(change.space, &change.key, value)?,
                None => self.remove(change.space, &change.key)?,
            }
        }
        Ok(())
    }

    fn clear_range(&self, space: PlacementId, keys: KeyBounds<'_>, rows_max: usize) -> Result<ClearStep, EngineError> {
        let mut removed = 0;
        let Some(bounds) = bounds(space, keys) else { return Ok(ClearStep { removed, done: true }) };
        for found in self.database.range::<Vec<u8>, _>(bounds).keys() {
            if removed == rows_max {
                return Ok(ClearStep { removed, done: false });
            }
            let full_key = found.map_err(self.fail("read rows"))?;
            self.remove(space, full_key.get(SPACE_BYTES..).unwrap_or_default())?;
            removed += 1;
        }
        Ok(ClearStep { removed, done: true })
    }

    fn clear(&self, space: PlacementId, rows_max: usize) -> Result<ClearStep, EngineError> {
        let mut removed = 0;
        // Rows and chunks alike, including chunks without a row, so that the space is empty afterwards.
        for found in self.database.scan_prefix(space.get().to_be_bytes()).keys() {
            if removed == rows_max {
                return Ok(ClearStep { removed, done: false });
            }
            self.database.remove(found.map_err(self.fail("read rows"))?).map_err(self.fail("remove a row"))?;
            removed += 1;
        }
        Ok(ClearStep { removed, done: true })
    }

    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
        let mut spaces = Vec::new();
        let mut next = Some(0_u64);
        while let Some(at_least) = next {
            let found = self.database.range(at_least.to_be_bytes()..).keys().next();
            let Some(key) = found.transpose().map_err(self.fail("read rows"))? else { break };
            let Some(Ok(space)) = key.get(..SPACE_BYTES).map(<[u8; SPACE_BYTES]>::try_from) else {
                return Err(self.damaged(format!("a key of {} bytes names no space", key.len())));
            };
            let space = u64::from_be_bytes(space);
            spaces.push(PlacementId::new(space));
            next = space.checked_add(1);
        }
        Ok(spaces)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.database.flush().map_err(self.fail("sync"))?;
        Ok(())
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

/// Key range of the tree.
type FullKeys = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns the rows of a space between two keys; `None` if the range ends before it begins.
fn bounds(space: PlacementId, (from, to): KeyBounds<'_>) -> Option<FullKeys> {
    let start = match from {
        Bound::Unbounded => Bound::Included(row_key(space, &[])),
        key => key.map(|key| row_key(space, key)),
    };
    let end = match to {
        Bound::Included(key) | Bound::Excluded(key) if key < &[CHUNK_KIND][..] => to.map(|key| row_key(space, key)),
        // Chunks are behind the rows.
        _ => Bound::Excluded(row_key(space, &[CHUNK_KIND])),
    };
    (!is_empty_range(&start, &end)).then_some((start, end))
}

fn chunk_key(space: PlacementId, key: &[u8], slot: u8, number: u16) -> Vec<u8> {
    let mut full = Vec::with_capacity(SPACE_BYTES + key.len() + 4);
    full.extend_from_slice(&space.get().to_be_bytes());
    full.push(CHUNK_KIND);
    full.extend_from_slice(key);
    // A suffix of fixed length, so that no two row keys share a chunk key.
    full.push(slot);
    full.extend_from_slice(&number.to_be_bytes());
    full
}

/// Returns whether another user has the files locked; sled reports that in text only.
fn is_held(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(source) if source.to_string().contains("could not acquire lock"))
}

fn convert(directory: &Path, what: &'static str, error: sled::Error) -> EngineError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    let directory = directory.to_owned();
    match error {
        sled::Error::Io(source) if !matches!(source.kind(), InvalidData | InvalidInput | UnexpectedEof) => {
            EngineError::Io { directory, what, source }
        }
        other => EngineError::Damaged { directory, what: format!("could not {what}: {other}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::conformance::config;
    use crate::engine::{EngineKind, open};

    /// A copy that counts as damaged is deleted, although the disk has what was synced.
    #[test]
    fn nothing_is_damage_after_full_disk() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("engine");
        open::prepare(&directory, Some(EngineKind::Sled)).unwrap();
        let engine = SledEngine::open(&directory, &config(EngineKind::Sled)).unwrap();
        assert!(engine.damaged("chunks are missing").is_damage());
        let full = engine.fail("write a row")(sled::Error::Io(std::io::ErrorKind::QuotaExceeded.into()));
        assert!(matches!(full, EngineError::Io { .. }), "{full}");
        let EngineError::Io { source, .. } = engine.damaged("chunks are missing") else {
            panic!("it counts as damage")
        };
        assert!(is_full(source.kind()) && source.to_string().contains("chunks are missing"), "{source}");
    }
}
