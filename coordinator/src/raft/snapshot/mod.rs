//! Snapshot files: written aside, synced, renamed, the directory synced; selected by number, never by name order.
//!
//! `magic(8) format(4) header length(4) body length(8) crc32c of header and body(4) header body`, little-endian.

#[cfg(test)]
mod snapshot_tests;
pub(super) mod survivor;

use super::log::codec::{self, FORMAT};
use super::types::SnapshotMeta;
use archon_wal::disk::{Disk, RealDisk};
use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"ARCHSNAP";
const PREFIX_BYTES: usize = 28;
/// Maximum size of a header, which holds ids and the voter set.
const HEADER_BYTES_MAX: u32 = 1024 * 1024;
/// Largest state accepted, far above what 100 000 partitions take.
pub(crate) const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Reasons for which snapshots cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A file operation failed.
    #[error("cannot {action} {path}: check that the disk works and the directory is writable")]
    Io {
        /// Attempted action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file was written by a newer version.
    #[error("snapshot {path} has format {found}, this version reads up to {FORMAT}: start the newer version")]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: u32,
    },
    /// The file is damaged.
    #[error("snapshot {path} is damaged ({what}): replace this coordinator under a new id")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the mismatch.
        what: String,
    },
    /// The file belongs to another quorum.
    #[error("snapshot {path} belongs to another quorum ({found}): the data directory was mixed up")]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// Quorum key in the file.
        found: Uuid,
    },
}

impl SnapshotError {
    /// Returns true if the disk is full and nothing else failed.
    pub(crate) fn is_full(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

impl From<SnapshotError> for io::Error {
    fn from(error: SnapshotError) -> Self {
        Self::other(error)
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    cluster: Uuid,
    meta: SnapshotMeta,
}

/// Index and term of a snapshot's last entry.
type Order = (u64, u64);

/// Suffix of an unfinished file.
const UNFINISHED: &str = ".tmp";
/// Suffix of a complete file that is not published.
const STAGED: &str = ".staged";

/// A snapshot file, and its size in bytes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SnapshotEntry {
    order: Order,
    name: String,
    bytes: u64,
}

/// The directory of snapshots of one coordinator.
#[derive(Debug)]
pub(crate) struct SnapshotDir {
    disk: Arc<dyn Disk>,
    /// Path of `disk`, for messages.
    dir: PathBuf,
    cluster: Uuid,
    /// A file that is complete and durable except for its name, and the checksum of its content.
    staged: Mutex<Option<(Order, u32)>>,
}

impl SnapshotDir {
    /// Opens the directory, creates it if needed and removes the remains of an interrupted write.
    pub(crate) fn open(dir: &Path, cluster: Uuid) -> Result<Self, SnapshotError> {
        let disk = RealDisk::open(dir).map_err(|source| failed("open", dir, source))?;
        Self::open_on(Arc::new(disk), dir, cluster)
    }

    /// As [`open`](SnapshotDir::open), on any disk; `dir` is for messages.
    pub(crate) fn open_on(disk: Arc<dyn Disk>, dir: &Path, cluster: Uuid) -> Result<Self, SnapshotError> {
        let this = Self { disk, dir: dir.to_path_buf(), cluster, staged: Mutex::default() };
        this.clear(UNFINISHED)?;
        this.clear(STAGED)?;
        Ok(this)
    }

    /// Returns the newest snapshot, checked from end to end.
    pub(crate) fn newest(&self) -> Result<Option<(SnapshotMeta, Bytes)>, SnapshotError> {
        match self.list()?.pop() {
            Some(newest) => self.read(&newest).map(Some),
            None => Ok(None),
        }
    }

    /// Publishes a snapshot and removes the older ones. One that is not newer than the present one changes nothing.
    pub(crate) fn publish(&self, meta: &SnapshotMeta, body: &[u8]) -> Result<(), SnapshotError> {
        let order = order_of(meta);
        let present = self.list()?;
        if present.last().is_some_and(|newest| newest.order >= order) {
            return Ok(());
        }
        let name = named(order, ".snap");
        let staged = self.staged.lock().take_if(|staged| *staged == (order, crc32c(body)));
        let aside = match staged {
            Some(_) => named(order, STAGED),
            None => {
                let aside = named(order, UNFINISHED);
                self.write(&aside, meta, body)?;
                aside
            }
        };
        self.disk.rename(&aside, &name).map_err(|source| self.failed("rename", &aside, source))?;
        self.disk.sync_directory().map_err(|source| failed("sync", &self.dir, source))?;
        for old in present {
            self.disk.remove(&old.name).map_err(|source| self.failed("remove", &old.name, source))?;
        }
        Ok(())
    }

    /// Writes a snapshot to the disk for later publication, so that publishing it needs no more space. Another
    /// staged one is discarded. One that is not newer than the published one changes nothing.
    ///
    /// # Errors
    /// As [`publish`](SnapshotDir::publish); nothing is left behind then.
    pub(crate) fn stage(&self, meta: &SnapshotMeta, body: &[u8]) -> Result<(), SnapshotError> {
        self.unstage();
        let order = order_of(meta);
        if self.list()?.last().is_some_and(|newest| newest.order >= order) {
            return Ok(());
        }
        self.write(&named(order, STAGED), meta, body)?;
        *self.staged.lock() = Some((order, crc32c(body)));
        Ok(())
    }

    /// Discards a staged snapshot.
    pub(crate) fn unstage(&self) {
        if let Some((order, _)) = self.staged.lock().take()
            && let Err(error) = self.disk.remove(&named(order, STAGED))
        {
            tracing::warn!(%error, "a snapshot that is not needed stays until the next start");
        }
    }

    /// Writes a snapshot, durable except for its name. A failed one leaves no file.
    fn write(&self, name: &str, meta: &SnapshotMeta, body: &[u8]) -> Result<(), SnapshotError> {
        let header = self.header(meta).map_err(|source| self.failed("encode", name, source))?;
        check_lengths(header.len(), body.len()).map_err(|source| self.failed("encode", name, source))?;
        // Removes the remains of an earlier attempt.
        self.clear(UNFINISHED)?;
        let written = self.write_pieces(name, &[&prefix(&header, body), &header, body]);
        if written.is_err()
            && let Err(error) = self.disk.remove(name)
            && error.kind() != io::ErrorKind::NotFound
        {
            // Half a file would occupy the little remaining space.
            tracing::warn!(%error, "an unfinished snapshot stays until the next one");
        }
        written
    }

    fn header(&self, meta: &SnapshotMeta) -> io::Result<Bytes> {
        codec::encode("snapshot header", &Header { cluster: self.cluster, meta: meta.clone() })
    }

    /// Returns a snapshot file for another disk.
    pub(super) fn file(&self, meta: &SnapshotMeta, body: &[u8]) -> io::Result<Bytes> {
        let header = self.header(meta)?;
        check_lengths(header.len(), body.len())?;
        Ok([&prefix(&header, body)[..], &header[..], body].concat().into())
    }

    fn write_pieces(&self, name: &str, pieces: &[&[u8]]) -> Result<(), SnapshotError> {
        let file = self.disk.create(name).map_err(|source| self.failed("create", name, source))?;
        let mut at = 0;
        for piece in pieces {
            file.write_at(at, piece).map_err(|source| self.failed("write", name, source))?;
            at += piece.len() as u64;
        }
        file.sync().map_err(|source| self.failed("sync", name, source))
    }

    /// Removes files whose names have this suffix.
    fn clear(&self, ending: &str) -> Result<(), SnapshotError> {
        for (name, _) in self.disk.list().map_err(|source| failed("list", &self.dir, source))? {
            if name.ends_with(ending) {
                self.disk.remove(&name).map_err(|source| self.failed("remove", &name, source))?;
            }
        }
        Ok(())
    }

    /// Returns the files, oldest first.
    fn list(&self) -> Result<Vec<SnapshotEntry>, SnapshotError> {
        let all = self.disk.list().map_err(|source| failed("list", &self.dir, source))?;
        let ours =
            all.into_iter().filter_map(|(name, bytes)| Some(SnapshotEntry { order: order_in(&name)?, name, bytes }));
        let mut found: Vec<SnapshotEntry> = ours.collect();
        found.sort();
        Ok(found)
    }

    fn read(&self, listed: &SnapshotEntry) -> Result<(SnapshotMeta, Bytes), SnapshotError> {
        let path = self.dir.join(&listed.name);
        let file = self.disk.open(&listed.name).map_err(|source| self.failed("open", &listed.name, source))?;
        let mut content = vec![0; content_bytes(&path, listed.bytes)?];
        file.read_at(0, &mut content).map_err(|source| self.failed("read", &listed.name, source))?;
        let (header, body) = decode_file(&path, content)?;
        if header.cluster != self.cluster {
            return Err(SnapshotError::OtherCluster { path, found: header.cluster });
        }
        Ok((header.meta, body))
    }

    fn failed(&self, action: &'static str, name: &str, source: io::Error) -> SnapshotError {
        failed(action, &self.dir.join(name), source)
    }
}

/// Reads a snapshot file from any path and of any quorum, checked from end to end.
pub(super) fn read_file(path: &Path) -> Result<(SnapshotMeta, Bytes), SnapshotError> {
    let bytes = std::fs::metadata(path).map_err(|source| failed("read", path, source))?.len();
    content_bytes(path, bytes)?;
    let content = std::fs::read(path).map_err(|source| failed("read", path, source))?;
    let (header, body) = decode_file(path, content)?;
    Ok((header.meta, body))
}

/// Returns the content size of a file of this size, if it can be a snapshot.
fn content_bytes(path: &Path, bytes: u64) -> Result<usize, SnapshotError> {
    let most = BODY_BYTES_MAX + u64::from(HEADER_BYTES_MAX) + PREFIX_BYTES as u64;
    let fits = usize::try_from(bytes).ok().filter(|_| (PREFIX_BYTES as u64..=most).contains(&bytes));
    fits.ok_or_else(|| SnapshotError::Damaged { path: path.to_path_buf(), what: format!("it has {bytes} bytes") })
}

/// Decodes a snapshot file.
fn decode_file(path: &Path, content: Vec<u8>) -> Result<(Header, Bytes), SnapshotError> {
    let damaged = |what: &str| SnapshotError::Damaged { path: path.to_path_buf(), what: what.to_owned() };
    let Some((prefix, rest)) = content.split_at_checked(PREFIX_BYTES) else {
        return Err(damaged("it is shorter than its prefix"));
    };
    let (magic, numbers) = prefix.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(damaged("the magic does not match"));
    }
    let format = le32(&numbers[0..4]);
    if format > FORMAT {
        return Err(SnapshotError::NewerFormat { path: path.to_path_buf(), found: format });
    }
    let (header_bytes, crc) = (le32(&numbers[4..8]), le32(&numbers[16..20]));
    let body_bytes = u64::from(le32(&numbers[8..12])) | (u64::from(le32(&numbers[12..16])) << 32);
    if header_bytes > HEADER_BYTES_MAX || body_bytes > BODY_BYTES_MAX {
        return Err(damaged("a length is out of range"));
    }
    if rest.len() as u64 != u64::from(header_bytes) + body_bytes {
        return Err(damaged("its length does not match"));
    }
    if crc32c(rest) != crc {
        return Err(damaged("the checksum does not match"));
    }
    let content = Bytes::from(content).slice(PREFIX_BYTES..);
    let header: Header = codec::decode("snapshot header", &content[..header_bytes as usize])
        .map_err(|error| damaged(&error.to_string()))?;
    Ok((header, content.slice(header_bytes as usize..)))
}

/// Rejects a snapshot that no coordinator would read: the log must not be cut behind it.
fn check_lengths(header: usize, body: usize) -> io::Result<()> {
    let parts = [("header", header as u64, u64::from(HEADER_BYTES_MAX)), ("state", body as u64, BODY_BYTES_MAX)];
    match parts.into_iter().find(|(_, bytes, most)| bytes > most) {
        Some((what, bytes, most)) => {
            let why = format!("its {what} has {bytes} bytes, the limit is {most}");
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
        None => Ok(()),
    }
}

fn prefix(header: &[u8], body: &[u8]) -> Vec<u8> {
    let crc = crc32c_append(crc32c(header), body);
    let mut out = Vec::with_capacity(PREFIX_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| (value << 8) | u32::from(*byte))
}

/// Index first: within one committed log a higher index is newer.
fn order_of(meta: &SnapshotMeta) -> Order {
    meta.last_log_id.as_ref().map_or((0, 0), |id| (id.index, id.leader_id.term))
}

fn named(order: Order, ending: &str) -> String {
    format!("snapshot-{:020}-{:020}{ending}", order.0, order.1)
}

fn order_in(name: &str) -> Option<Order> {
    let (index, term) = name.strip_prefix("snapshot-")?.strip_suffix(".snap")?.split_once('-')?;
    Some((index.parse().ok()?, term.parse().ok()?))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> SnapshotError {
    SnapshotError::Io { action, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::LogId;
    use std::fs;

    fn meta(term: u64, index: u64) -> SnapshotMeta {
        SnapshotMeta { last_log_id: Some(LogId { leader_id: term.into(), index }), ..SnapshotMeta::default() }
    }

    #[test]
    fn snapshot_that_no_reader_takes_is_not_written() {
        let (header, body) = (HEADER_BYTES_MAX as usize, BODY_BYTES_MAX as usize);
        for (header, body, fits) in
            [(header - 1, body - 1, true), (header, body, true), (header + 1, 0, false), (0, body + 1, false)]
        {
            assert_eq!(check_lengths(header, body).is_ok(), fits, "{header} and {body} bytes");
        }
    }

    #[test]
    fn newest_is_chosen_by_number_and_not_replaced_by_older() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = SnapshotDir::open(dir.path(), Uuid::from_u128(1)).unwrap();
        for index in [9, 10, 3] {
            snapshots.publish(&meta(1, index), format!("state {index}").as_bytes()).unwrap();
        }
        let (found, body) = snapshots.newest().unwrap().unwrap();
        assert_eq!((found, &body[..]), (meta(1, 10), &b"state 10"[..]));
        assert_eq!(snapshots.list().unwrap().len(), 1, "older files are removed");
    }

    #[test]
    fn damaged_short_and_foreign_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = SnapshotDir::open(dir.path(), Uuid::from_u128(1)).unwrap();
        snapshots.publish(&meta(1, 5), b"some state").unwrap();
        let other = SnapshotDir::open(dir.path(), Uuid::from_u128(2)).unwrap();
        assert!(matches!(other.newest(), Err(SnapshotError::OtherCluster { .. })));
        let path = dir.path().join(snapshots.list().unwrap().pop().unwrap().name);
        let whole = fs::read(&path).unwrap();
        for place in [0, 8, 13, 25, 30, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[place] ^= 0x40;
            fs::write(&path, &bytes).unwrap();
            assert!(snapshots.newest().is_err(), "bit flip at {place} was not noticed");
        }
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(matches!(snapshots.newest(), Err(SnapshotError::Damaged { .. })));
    }
}
