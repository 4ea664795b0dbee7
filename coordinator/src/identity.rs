//! Who a data directory is: written once, locked while in use, refused when it is asked to be somebody else.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use uuid::Uuid;

const FILE: &str = "identity.json";
const LOCK: &str = "LOCK";
const MAGIC: &str = "archon-coordinator";
const FORMAT: u32 = 1;
/// An identity is a few hundred bytes; anything much larger is not one.
const BYTES_MAX: u64 = 64 * 1024;

/// Why a data directory is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum IdentityError {
    #[error("cannot {action} {path}: {source}; check that the directory exists and is writable")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{dir} is in use by another process; end it, or give this coordinator its own --data-dir")]
    Locked { dir: PathBuf },
    #[error("{path} is damaged ({what}); restore the data directory from where it was")]
    Damaged { path: PathBuf, what: String },
    #[error("{path} has format {found}, this version reads up to {FORMAT}; start the newer version")]
    NewerFormat { path: PathBuf, found: u32 },
    #[error(
        "{dir} belongs to coordinator {found}, not {id}; start it with --id {found}, or give it another --data-dir"
    )]
    OtherId { dir: PathBuf, found: u64, id: u64 },
    #[error(
        "{dir} was made for --peers {found}, now it is {given}; the peer list is fixed when the quorum is made: start it \
         with the old list"
    )]
    OtherPeers { dir: PathBuf, found: String, given: String },
    #[error(
        "{dir} has voted before, but its Raft log is gone; restore the directory, a voter must not forget its votes"
    )]
    LogLost { dir: PathBuf },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Stored {
    magic: String,
    format: u32,
    coordinator: u64,
    storage: Uuid,
    peers: BTreeMap<u64, String>,
    /// Raft was started here, so from now on an empty log means a lost one.
    started: bool,
}

/// A data directory that belongs to this process while the value lives.
#[derive(Debug)]
pub(crate) struct Identity {
    dir: PathBuf,
    stored: Stored,
    /// Held for its lock.
    _lock: File,
}

impl Identity {
    /// Opens or makes the identity of `dir`, and locks it.
    pub(crate) fn open(
        dir: &Path,
        id: u64,
        peers: &BTreeMap<u64, String>,
        mint: impl FnOnce() -> Uuid,
    ) -> Result<Self, IdentityError> {
        fs::create_dir_all(dir).map_err(|source| failed("create", dir, source))?;
        let lock_path = dir.join(LOCK);
        let lock = File::create(&lock_path).map_err(|source| failed("create", &lock_path, source))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(IdentityError::Locked { dir: dir.to_path_buf() }),
            // A file system without locks, for one: nobody else is to blame, and nobody would be kept out.
            Err(errno) => return Err(failed("lock", &lock_path, errno.into())),
        }
        let stored = match read(&dir.join(FILE))? {
            Some(stored) => stored,
            None => {
                let stored = Stored {
                    magic: MAGIC.to_owned(),
                    format: FORMAT,
                    coordinator: id,
                    storage: mint(),
                    peers: peers.clone(),
                    started: false,
                };
                write(dir, &stored)?;
                stored
            }
        };
        if stored.coordinator != id {
            return Err(IdentityError::OtherId { dir: dir.to_path_buf(), found: stored.coordinator, id });
        }
        if stored.peers != *peers {
            let (found, given) = (list(&stored.peers), list(peers));
            return Err(IdentityError::OtherPeers { dir: dir.to_path_buf(), found, given });
        }
        Ok(Self { dir: dir.to_path_buf(), stored, _lock: lock })
    }

    /// The id of this directory.
    pub(crate) fn storage(&self) -> Uuid {
        self.stored.storage
    }

    /// Whether Raft was ever started here.
    pub(crate) fn is_started(&self) -> bool {
        self.stored.started
    }

    /// Notes durably that Raft starts, before it does.
    pub(crate) fn mark_started(&mut self) -> Result<(), IdentityError> {
        if !self.stored.started {
            self.stored.started = true;
            write(&self.dir, &self.stored)?;
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<Stored>, IdentityError> {
    let damaged = |what: String| IdentityError::Damaged { path: path.to_path_buf(), what };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path, source)),
        Ok(metadata) if metadata.len() > BYTES_MAX => return Err(damaged(format!("{} bytes", metadata.len()))),
        Ok(_) => {}
    }
    let bytes = fs::read(path).map_err(|source| failed("read", path, source))?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if value.get("magic").and_then(serde_json::Value::as_str) != Some(MAGIC) {
        return Err(damaged(format!("its magic is not {MAGIC:?}")));
    }
    let format = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if format > u64::from(FORMAT) {
        let found = u32::try_from(format).unwrap_or(u32::MAX);
        return Err(IdentityError::NewerFormat { path: path.to_path_buf(), found });
    }
    serde_json::from_value(value).map(Some).map_err(|error| damaged(error.to_string()))
}

fn write(dir: &Path, stored: &Stored) -> Result<(), IdentityError> {
    let (path, aside) = (dir.join(FILE), dir.join("identity.tmp"));
    let text = serde_json::to_vec_pretty(stored).map_err(|error| failed("encode", &path, io::Error::other(error)))?;
    let mut file = File::create(&aside).map_err(|source| failed("create", &aside, source))?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(|source| failed("write", &aside, source))?;
    fs::rename(&aside, &path).map_err(|source| failed("rename", &aside, source))?;
    File::open(dir).and_then(|directory| directory.sync_all()).map_err(|source| failed("sync", dir, source))
}

fn list(peers: &BTreeMap<u64, String>) -> String {
    let each: Vec<String> = peers.iter().map(|(id, address)| format!("{id}={address}")).collect();
    each.join(",")
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> IdentityError {
    IdentityError::Io { action, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(port: u16) -> BTreeMap<u64, String> {
        [(1, format!("127.0.0.1:{port}")), (2, "127.0.0.1:2".to_owned())].into()
    }

    #[test]
    fn a_directory_stays_who_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let open = |id, peers: &BTreeMap<u64, String>| Identity::open(dir.path(), id, peers, Uuid::new_v4);
        let first = open(1, &peers(1)).unwrap();
        let storage = first.storage();
        assert!(matches!(open(1, &peers(1)), Err(IdentityError::Locked { .. })));
        drop(first);
        assert_eq!(open(1, &peers(1)).unwrap().storage(), storage);
        assert!(matches!(open(2, &peers(1)), Err(IdentityError::OtherId { found: 1, .. })));
        let changed = open(1, &peers(9)).unwrap_err();
        assert!(changed.to_string().contains("1=127.0.0.1:1,2=127.0.0.1:2"), "{changed}");
    }

    #[test]
    fn damage_and_newer_formats_are_refused_untouched() {
        let dir = tempfile::tempdir().unwrap();
        drop(Identity::open(dir.path(), 1, &peers(1), Uuid::new_v4).unwrap());
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for bad in ["", "{", "[]", "{\"magic\":\"other\"}", &text.replace("\"storage\"", "\"x\"")] {
            fs::write(&path, bad).unwrap();
            let found = Identity::open(dir.path(), 1, &peers(1), Uuid::new_v4);
            assert!(matches!(found, Err(IdentityError::Damaged { .. })), "{bad:?}");
        }
        let newer = text.replace("\"format\": 1", "\"format\": 2");
        fs::write(&path, &newer).unwrap();
        let found = Identity::open(dir.path(), 1, &peers(1), Uuid::new_v4);
        assert!(matches!(found, Err(IdentityError::NewerFormat { found: 2, .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), newer);
    }
}
