//! What an engine is: an ordered map of bytes per placement, without snapshots or transactions.
//!
//! The write-ahead log is the acknowledgement boundary, not the engine. The engine may be ahead of what the log says it
//! holds, or torn by a crash: replaying the log from the known-complete position heals both, since effects are blind.
//! It may never be *behind* that position, which is why [`Engine::sync`] must reach the disk and not only the kernel.

use archon_types::limits::{PAGE_BYTES_MAX, PAGE_ROWS_MAX};
use archon_types::{DiskFull, PlacementId, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;
use std::path::PathBuf;

/// Longest key the engine takes, in bytes: the longest user key, its kind byte and room for row suffixes.
pub const ENGINE_KEY_BYTES_MAX: usize = archon_types::limits::KEY_BYTES_MAX + 64;

/// The kind byte that engines keep to themselves; no row's key begins with it.
pub const RESERVED_KIND: u8 = 0xFF;
/// Longest value the engine takes, in bytes.
pub const ENGINE_VALUE_BYTES_MAX: usize = 65_535 * 64 * 1024;

/// One blind write: a row set, or removed if `value` is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The placement whose row it is.
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

/// Some consecutive rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The rows, in the order of key that was asked for.
    pub rows: Vec<Row>,
    /// Whether there may be rows after the last one, within what was asked for.
    pub more: bool,
}

impl Page {
    /// The first of some rows in order, as many as `limit` lets in.
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

/// The rows between two keys.
pub type Between<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// How much a page may hold. A page always holds one row if there is one, however large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageLimit {
    /// Most rows, at least 1.
    pub rows_max: usize,
    /// Most bytes of keys and values.
    pub bytes_max: usize,
}

impl PageLimit {
    /// The limit on one page sent between nodes, or written into the log.
    pub const PAGE: Self = Self::bytes(PAGE_BYTES_MAX);

    /// A limit on bytes, and on rows as on those of any page: rows may be as small as a byte.
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

    /// Whether a page of `rows` rows and `bytes` bytes has no room for another row of `next` bytes.
    pub fn is_full(&self, rows: usize, bytes: usize, next: usize) -> bool {
        rows > 0 && (rows >= self.rows_max || bytes.saturating_add(next) > self.bytes_max)
    }
}

/// The next of some rows that are to be given in this order.
pub fn next_in<I: DoubleEndedIterator>(rows: &mut I, order: ScanOrder) -> Option<I::Item> {
    match order {
        ScanOrder::Ascending => rows.next(),
        ScanOrder::Descending => rows.next_back(),
    }
}

/// What one step of clearing did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cleared {
    /// Rows removed in this step.
    pub removed: usize,
    /// Whether nothing is left of what was to be removed.
    pub done: bool,
}

/// An ordered map of bytes per placement. One thread writes (the flusher); any thread reads.
pub trait Engine: Send + Sync + 'static {
    /// The row with this key.
    ///
    /// # Errors
    /// [`EngineError`] if the engine fails or the row is damaged.
    fn get(&self, space: PlacementId, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Rows of a space between two keys, in this order of key; none if that ends before it begins.
    ///
    /// # Errors
    /// [`EngineError`] if the engine fails or a row is damaged.
    fn page(
        &self,
        space: PlacementId,
        keys: Between<'_>,
        order: ScanOrder,
        limit: PageLimit,
    ) -> Result<Page, EngineError>;

    /// Applies changes in order. A crash may leave any part of them done: replaying the log heals that.
    ///
    /// # Errors
    /// [`EngineError`]; the engine must not be written to any more, and the log not be trimmed.
    fn write(&self, changes: &[Change]) -> Result<(), EngineError>;

    /// Whether [`Engine::ingest`] is so much cheaper than [`Engine::write`] that it pays to gather rows for it.
    fn ingests(&self) -> bool {
        false
    }

    /// Sets rows of one space that come in ascending order of key, each once. A call costs something by itself, so that it is to bring many.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    fn ingest(&self, rows: &[Change]) -> Result<(), EngineError> {
        self.write(rows)
    }

    /// Removes up to about `rows_max` of the rows of a space between two keys, and whatever the engine keeps for them. Of steps
    /// that go on until one says that nothing is left, each is as cheap as the first.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    fn clear_range(&self, space: PlacementId, keys: Between<'_>, rows_max: usize) -> Result<Cleared, EngineError>;

    /// Removes up to about `rows_max` rows of a space, and in the end whatever else the engine keeps of it.
    ///
    /// # Errors
    /// [`EngineError`] as for [`Engine::write`].
    fn clear(&self, space: PlacementId, rows_max: usize) -> Result<Cleared, EngineError> {
        self.clear_range(space, (Bound::Unbounded, Bound::Unbounded), rows_max)
    }

    /// Every space that has at least one row, in order.
    ///
    /// # Errors
    /// [`EngineError`] if the engine fails.
    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError>;

    /// Returns once everything written before is on the disk: a real fsync.
    ///
    /// # Errors
    /// [`EngineError`]; what was written since the last good sync may be lost, so the process must end and recover.
    fn sync(&self) -> Result<(), EngineError>;

    /// Looks whether there is space on the disk for more writes. If not, space held in reserve was freed, so that a sync
    /// still brings what was written before to the disk; nothing should be written until this says otherwise.
    ///
    /// # Errors
    /// [`DiskFull`]: how much is free, and how much is needed.
    fn check_disk(&self) -> Result<(), DiskFull> {
        Ok(())
    }

    /// Frees the space held in reserve and writes a file: after a failed write, which may have met a limit of which
    /// [`Engine::check_disk`] knows nothing, such as a quota.
    ///
    /// # Errors
    /// [`DiskFull`], as [`Engine::check_disk`].
    fn probe_disk(&self) -> Result<(), DiskFull> {
        self.check_disk()
    }

    /// Whether there is so much more space than [`Engine::check_disk`] demands that what nobody waits for may be written, too.
    fn has_space_to_spare(&self) -> bool {
        true
    }
}

/// What can go wrong in an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The operating system refused something; nothing is known to be damaged.
    #[error("the engine in {} could not {what}: {source}; check the disk's space and permissions", directory.display())]
    Io {
        /// The engine's directory.
        directory: PathBuf,
        /// What it was doing.
        what: &'static str,
        /// The refusal.
        source: std::io::Error,
    },
    /// The stored data cannot be what was written.
    #[error("the engine in {} is damaged: {what}; its replicas must be reloaded from the log and from peers", directory.display())]
    Damaged {
        /// The engine's directory.
        directory: PathBuf,
        /// What was found.
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
    /// The directory is another engine's. It was not touched.
    #[error(
        "the engine in {} is {found}, but {wanted} was asked for; leave --engine out to go on with it. To change, \
         have this node drained first (`archon node drain`) and start it with an empty directory: what has no other copy is in this one",
        directory.display()
    )]
    OtherEngine {
        /// The engine's directory.
        directory: PathBuf,
        /// Whose it is.
        found: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The engine's syncs do not reach the disk in this build.
    #[error("the engine in {} would not sync to the disk in this build: {what}", directory.display())]
    NotDurable {
        /// The engine's directory.
        directory: PathBuf,
        /// What was noticed.
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
    /// Whether the data on disk is the trouble, so that setting it aside and reloading helps.
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

/// Whether nothing lies between two bounds. Maps panic on a range that ends before it begins.
pub fn is_empty_range<T: Ord>(from: &Bound<T>, to: &Bound<T>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

/// Refuses a row that no engine takes.
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
