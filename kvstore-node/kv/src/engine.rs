//! Engine interface: an ordered map of bytes per placement, without snapshots or transactions.
//!
//! The write-ahead log is the acknowledgement boundary, not the engine. The engine may be ahead of the position that
//! the log has for it, or torn by a crash: replaying the log from the known-complete position repairs both, since
//! row changes are blind and windows of clients are joins (ADR 0091). It must never be *behind* that position, which is
//! why [`Engine::sync`] must reach the disk and not only the kernel.

use archon_types::limits::{COPY_PAGE_BYTES_MAX, PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use archon_types::{DiskFull, PlacementId, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::Duration;

/// Longest key of an engine row, in bytes: the longest user key, its kind byte and room for row suffixes.
pub const ENGINE_KEY_BYTES_MAX: usize = archon_types::limits::KEY_BYTES_MAX + 64;

/// The kind byte reserved for engines; no row's key begins with it.
pub const RESERVED_KIND: u8 = 0xFF;
/// Longest value of an engine row, in bytes.
pub const ENGINE_VALUE_BYTES_MAX: usize = 65_535 * 64 * 1024;

/// One blind write: a row set, or removed if `value` is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The row's placement.
    pub space: PlacementId,
    /// The row's key, at most [`ENGINE_KEY_BYTES_MAX`] bytes.
    pub key: Bytes,
    /// The row's new value, or `None` to remove it.
    pub value: Option<Bytes>,
}

/// One stored row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// Consecutive rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The rows, in the requested order of key.
    pub rows: Vec<Row>,
    /// There may be further rows within the request.
    pub more: bool,
}

impl Page {
    /// Returns the first of some rows in order, as many as `limit` allows.
    pub fn of<'a>(rows: impl Iterator<Item = (&'a Bytes, &'a Bytes)>, limit: PageLimit) -> Self {
        let (mut page, mut bytes) = (Self::default(), 0);
        for (key, value) in rows {
            let size = key.len() + value.len();
            if limit.is_full(page.rows.len(), bytes, size) {
                page.more = true;
                break;
            }
            bytes += size;
            page.rows.push(Row { key: key.clone(), value: value.clone() });
        }
        page
    }
}

/// Key range of a read.
pub type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Bound on a page. A page always holds one row if there is one, however large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLimit {
    /// Most rows, at least 1.
    pub rows_max: usize,
    /// Most bytes of keys and values.
    pub bytes_max: usize,
}

impl PageLimit {
    /// The limit on one page sent between nodes, or written to the log.
    pub const PAGE: Self = Self::bytes(PAGE_BYTES_MAX);
    /// The limit on one page of a copy. An engine of sorted tables searches all of them for each page, so these pages are larger.
    pub const COPY: Self = Self::bytes(COPY_PAGE_BYTES_MAX);

    /// Limits bytes, and rows to those of any page, as rows may be as small as a byte.
    pub const fn bytes(bytes_max: usize) -> Self {
        Self { rows_max: PAGE_ROWS_MAX, bytes_max }
    }

    /// Counts the leading rows that fit into a page.
    pub fn count(&self, rows: &[Row]) -> usize {
        let mut bytes = 0;
        for (number, row) in rows.iter().enumerate() {
            let size = row.key.len() + row.value.len();
            if self.is_full(number, bytes, size) {
                return number;
            }
            bytes += size;
        }
        rows.len()
    }

    /// Returns whether a page of `rows` rows and `bytes` bytes has no room for another row of `next` bytes.
    pub fn is_full(&self, rows: usize, bytes: usize, next: usize) -> bool {
        rows > 0 && (rows >= self.rows_max || bytes.saturating_add(next) > self.bytes_max)
    }
}

/// Returns the next of some rows in this order.
pub fn next_in<I: DoubleEndedIterator>(rows: &mut I, order: ScanOrder) -> Option<I::Item> {
    match order {
        ScanOrder::Ascending => rows.next(),
        ScanOrder::Descending => rows.next_back(),
    }
}

/// Result of one step of clearing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClearStep {
    /// Rows removed in this step.
    pub removed: usize,
    /// Nothing is left to remove.
    pub done: bool,
}

/// An ordered map of bytes per placement. One thread writes (the flusher); any thread reads.
pub trait Engine: Send + Sync + 'static {
    /// Returns the row with this key.
    ///
    /// # Errors
    /// [`EngineError`] if the engine fails or the row is damaged.
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Returns rows of a space between two keys, in this order of key; none if the range ends before it begins.
    ///
    /// # Errors
    /// [`EngineError`] if the engine fails or a row is damaged.
    fn page(
        &self,
        space: PlacementId,
        keys: KeyBounds<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError>;

    /// Applies changes in order. A crash may leave any part of them done: replaying the log repairs that.
    ///
    /// # Errors
    /// [`EngineError`]; afterwards the engine must not be written to, and the log not be trimmed.
    fn write(&self, changes: &[Change]) -> Result<(), EngineError>;

    /// Returns whether the engine writes sorted tables. Then [`Engine::ingest`] is so much cheaper than [`Engine::write`]
    /// that gathering rows for it pays, and each [`Engine::sync`] writes a table.
    fn writes_tables(&self) -> bool {
        false
    }

    /// Returns whether more rows may be written now: not while the engine lags behind with merging them.
    ///
    /// # Errors
    /// The error that ended the merging.
    fn has_room(&self) -> Result<bool, EngineError> {
        Ok(true)
    }

    /// Returns the longest time for which written rows should wait for a sync: the longer, the more a sync costs.
    fn sync_interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Sets rows of one space in ascending order of key, each once. Calls have a fixed cost, so each should bring many
    /// rows.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    fn ingest(&self, rows: &[Change]) -> Result<(), EngineError> {
        self.write(rows)
    }

    /// Removes up to about `rows_max` rows of a space between two keys, and the engine's own data for them. In a series
    /// of steps up to the one that reports the end, each step is as cheap as the first.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    fn clear_range(&self, space: PlacementId, keys: KeyBounds<'_>, rows_max: usize) -> Result<ClearStep, EngineError>;

    /// Removes up to about `rows_max` rows of a space, and at the end all other engine data of it.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    fn clear(&self, space: PlacementId, rows_max: usize) -> Result<ClearStep, EngineError> {
        self.clear_range(space, (Bound::Unbounded, Bound::Unbounded), rows_max)
    }

    /// Returns every space that has at least one row, in order.
    ///
    /// # Errors
    /// [`EngineError`] if the engine fails.
    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError>;

    /// Returns once everything written before is on disk: a real fsync.
    ///
    /// # Errors
    /// [`EngineError`]; writes since the last good sync may be lost, so the process must end and recover.
    fn sync(&self) -> Result<(), EngineError>;

    /// Checks that the disk has space for more writes. If not, it has freed reserved space, so that a sync still brings
    /// earlier writes to the disk; write nothing until a later check succeeds.
    ///
    /// # Errors
    /// [`DiskFull`] with the free and the needed space.
    fn check_disk(&self) -> Result<(), DiskFull> {
        Ok(())
    }

    /// Frees the reserved space and writes a file. For use after a failed write, which may have met a limit that
    /// [`Engine::check_disk`] cannot see, such as a quota.
    ///
    /// # Errors
    /// [`DiskFull`], as [`Engine::check_disk`].
    fn probe_disk(&self) -> Result<(), DiskFull> {
        self.check_disk()
    }

    /// Returns whether there is so much more space than [`Engine::check_disk`] demands that deferrable writes are
    /// allowed too.
    fn has_space_to_spare(&self) -> bool {
        true
    }
}

/// Error of an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The operating system refused an operation; nothing is known to be damaged.
    #[error("the engine in {} could not {what}: {source}; check the disk's space and permissions", directory.display())]
    Io {
        /// The engine's directory.
        directory: PathBuf,
        /// The operation.
        what: &'static str,
        /// Its error.
        source: std::io::Error,
    },
    /// The stored data differs from what was written.
    #[error("the engine in {} is damaged: {what}; its replicas must be reloaded from the log and from peers", directory.display())]
    Damaged {
        /// The engine's directory.
        directory: PathBuf,
        /// The damage found.
        what: String,
    },
    /// The directory was written by a newer version. It was not touched.
    #[error("the engine in {} has format {found}, this version reads up to {known}; run the newer version", directory.display())]
    NewerFormat {
        /// The engine's directory.
        directory: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this version knows.
        known: u32,
    },
    /// The directory was written by an earlier version. It was not touched.
    #[error(
        "the engine in {} has format {found}, this version reads {known} only: it keeps values and the records of clients in another form. \
        Nodes of both versions do not replicate to each other, so draining this node does not help. To move the data, run the earlier \
        version and back it up (`archon backup create`), stop every member, start this version with empty directories, and restore it \
        (`archon backup restore`)",
        directory.display()
    )]
    OlderFormat {
        /// The engine's directory.
        directory: PathBuf,
        /// The format found.
        found: u32,
        /// The format this version knows.
        known: u32,
    },
    /// The directory belongs to an engine that this version does not have. It was not touched.
    #[error(
        "the engine in {} is {found:?}, which this version does not have. To move the data, run the version that created it and back it \
        up (`archon backup create`), stop every member, start this version with empty directories, and restore it \
        (`archon backup restore`)",
        directory.display()
    )]
    UnknownEngine {
        /// The engine's directory.
        directory: PathBuf,
        /// The engine it belongs to.
        found: String,
    },
    /// The directory belongs to another engine. It was not touched.
    #[error(
        "the engine in {} is {found}, but --engine is {wanted}; omit --engine to keep it. To change the engine, drain \
         this node first (`archon node drain`), because its data may have no other replica, and start it with an empty \
         directory",
        directory.display()
    )]
    OtherEngine {
        /// The engine's directory.
        directory: PathBuf,
        /// The engine it belongs to.
        found: &'static str,
        /// The configured engine.
        wanted: &'static str,
    },
    /// The engine's syncs do not reach the disk in this build.
    #[error("the engine in {} would not sync to the disk in this build: {what}", directory.display())]
    NotDurable {
        /// The engine's directory.
        directory: PathBuf,
        /// The evidence.
        what: &'static str,
    },
    /// A key is longer than [`ENGINE_KEY_BYTES_MAX`] or a value longer than [`ENGINE_VALUE_BYTES_MAX`].
    #[error("a row of {key_bytes} key bytes and {value_bytes} value bytes is too large for the engine")]
    TooLarge {
        /// Length of the key.
        key_bytes: usize,
        /// Length of the value.
        value_bytes: usize,
    },
}

impl EngineError {
    /// Returns whether the data on disk is damaged, so that setting it aside and reloading helps.
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

/// Returns whether nothing lies between two bounds. Maps panic on a range that ends before it begins.
pub fn is_empty_range<T: Ord>(from: &Bound<T>, to: &Bound<T>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

/// Rejects a row that no engine accepts.
///
/// # Errors
/// [`EngineError::TooLarge`] for an empty or too long key, one of the [`RESERVED_KIND`], or a value that is too long.
pub fn check_size(key: &[u8], value: Option<&[u8]>) -> Result<(), EngineError> {
    let value_bytes = value.map_or(0, <[u8]>::len);
    let key_fits = key.first().is_some_and(|kind| *kind != RESERVED_KIND) && key.len() <= ENGINE_KEY_BYTES_MAX;
    if !key_fits || value_bytes > ENGINE_VALUE_BYTES_MAX {
        return Err(EngineError::TooLarge { key_bytes: key.len(), value_bytes });
    }
    Ok(())
}
