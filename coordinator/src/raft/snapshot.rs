//! Snapshot files: written aside, synced, renamed, the directory synced; chosen by number, never by name order.
//!
//! `magic(8) format(4) header length(4) body length(8) crc32 of header and body(4) header body`, little-endian.

use super::codec::{self, FORMAT};
use super::types::SnapshotMeta;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"ARCHSNAP";
const PREFIX_BYTES: usize = 28;
/// A header holds ids and the voter set; anything larger is not one of ours.
const HEADER_BYTES_MAX: u32 = 1024 * 1024;
/// Largest state accepted, far above what 100 000 partitions take.
pub(crate) const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Why snapshots cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A file operation failed.
    #[error("cannot {action} {path}: check that the disk works and the directory is writable")]
    Io {
        /// What was being done.
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
        /// Its format.
        found: u32,
    },
    /// The file is damaged.
    #[error("snapshot {path} is damaged ({what}): replace this coordinator under a new id")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What did not fit.
        what: String,
    },
    /// The file belongs to another quorum.
    #[error("snapshot {path} belongs to another quorum ({found}): the data directory was mixed up")]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The quorum key in it.
        found: Uuid,
    },
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

/// The directory of snapshots of one coordinator.
#[derive(Debug)]
pub(crate) struct SnapshotDir {
    dir: PathBuf,
    cluster: Uuid,
}

impl SnapshotDir {
    /// Opens the directory, creates it if needed and removes what an interrupted write left.
    pub(crate) fn open(dir: &Path, cluster: Uuid) -> Result<Self, SnapshotError> {
        fs::create_dir_all(dir).map_err(|source| failed("create", dir, source))?;
        let this = Self { dir: dir.to_path_buf(), cluster };
        for entry in fs::read_dir(dir).map_err(|source| failed("list", dir, source))? {
            let path = entry.map_err(|source| failed("list", dir, source))?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                fs::remove_file(&path).map_err(|source| failed("remove", &path, source))?;
            }
        }
        Ok(this)
    }

    /// The newest snapshot, checked from end to end.
    pub(crate) fn newest(&self) -> Result<Option<(SnapshotMeta, Bytes)>, SnapshotError> {
        match self.list()?.pop() {
            Some((_, path)) => self.read(&path).map(Some),
            None => Ok(None),
        }
    }

    /// Publishes a snapshot and removes the older ones. One that is not newer than what is there changes nothing.
    pub(crate) fn publish(&self, meta: &SnapshotMeta, body: &[u8]) -> Result<(), SnapshotError> {
        let order = order_of(meta);
        let present = self.list()?;
        if present.last().is_some_and(|(newest, _)| *newest >= order) {
            return Ok(());
        }
        let path = self.dir.join(format!("snapshot-{:020}-{:020}.snap", order.0, order.1));
        let aside = path.with_extension("tmp");
        let header = codec::encode("snapshot header", &Header { cluster: self.cluster, meta: meta.clone() })
            .map_err(|source| failed("encode", &path, source))?;
        let mut file = File::create(&aside).map_err(|source| failed("create", &aside, source))?;
        file.write_all(&prefix(&header, body))
            .and_then(|()| file.write_all(&header))
            .and_then(|()| file.write_all(body))
            .and_then(|()| file.sync_all())
            .map_err(|source| failed("write", &aside, source))?;
        fs::rename(&aside, &path).map_err(|source| failed("rename", &aside, source))?;
        File::open(&self.dir)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| failed("sync", &self.dir, source))?;
        for (_, old) in present {
            fs::remove_file(&old).map_err(|source| failed("remove", &old, source))?;
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<(Order, PathBuf)>, SnapshotError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(|source| failed("list", &self.dir, source))? {
            let path = entry.map_err(|source| failed("list", &self.dir, source))?.path();
            if let Some(order) = path.file_name().and_then(|name| name.to_str()).and_then(order_in) {
                found.push((order, path));
            }
        }
        found.sort();
        Ok(found)
    }

    fn read(&self, path: &Path) -> Result<(SnapshotMeta, Bytes), SnapshotError> {
        let damaged = |what: &str| SnapshotError::Damaged { path: path.to_path_buf(), what: what.to_owned() };
        let mut file = File::open(path).map_err(|source| failed("open", path, source))?;
        let mut prefix = [0u8; PREFIX_BYTES];
        file.read_exact(&mut prefix).map_err(|_| damaged("it is shorter than its prefix"))?;
        let (magic, rest) = prefix.split_at(8);
        if magic != MAGIC {
            return Err(damaged("the magic does not match"));
        }
        let format = le32(&rest[0..4]);
        if format > FORMAT {
            return Err(SnapshotError::NewerFormat { path: path.to_path_buf(), found: format });
        }
        let (header_bytes, crc) = (le32(&rest[4..8]), le32(&rest[16..20]));
        let body_bytes = u64::from(le32(&rest[8..12])) | (u64::from(le32(&rest[12..16])) << 32);
        if header_bytes > HEADER_BYTES_MAX || body_bytes > BODY_BYTES_MAX {
            return Err(damaged("a length is out of range"));
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(|source| failed("read", path, source))?;
        if content.len() as u64 != u64::from(header_bytes) + body_bytes {
            return Err(damaged("its length does not match"));
        }
        if crc32fast::hash(&content) != crc {
            return Err(damaged("the checksum does not match"));
        }
        let content = Bytes::from(content);
        let header: Header = codec::decode("snapshot header", &content[..header_bytes as usize])
            .map_err(|error| damaged(&error.to_string()))?;
        if header.cluster != self.cluster {
            return Err(SnapshotError::OtherCluster { path: path.to_path_buf(), found: header.cluster });
        }
        Ok((header.meta, content.slice(header_bytes as usize..)))
    }
}

fn prefix(header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(body);
    let mut out = Vec::with_capacity(PREFIX_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&(body.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc.finalize().to_le_bytes());
    out
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| (value << 8) | u32::from(*byte))
}

/// Index first: within one committed log a higher index is newer.
fn order_of(meta: &SnapshotMeta) -> Order {
    meta.last_log_id.as_ref().map_or((0, 0), |id| (id.index, id.leader_id.term))
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

    fn meta(term: u64, index: u64) -> SnapshotMeta {
        SnapshotMeta { last_log_id: Some(LogId { leader_id: term.into(), index }), ..SnapshotMeta::default() }
    }

    #[test]
    fn the_newest_is_chosen_by_number_and_never_replaced_by_an_older_one() {
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
    fn a_flipped_bit_a_short_file_and_another_quorum_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = SnapshotDir::open(dir.path(), Uuid::from_u128(1)).unwrap();
        snapshots.publish(&meta(1, 5), b"some state").unwrap();
        let other = SnapshotDir::open(dir.path(), Uuid::from_u128(2)).unwrap();
        assert!(matches!(other.newest(), Err(SnapshotError::OtherCluster { .. })));
        let (_, path) = snapshots.list().unwrap().pop().unwrap();
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
