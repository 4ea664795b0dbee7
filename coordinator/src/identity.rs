//! Identity of a data directory: locked while in use, refused for another coordinator, or if its content was written by
//! a protocol that this version does not speak.

use crate::config::FirstStart;
use crate::raft::quorum_key;
use archon_durable::{Lock, LockError};
use archon_types::{PROTOCOL_FIRST, ProtocolRange};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const FILE: &str = "identity.json";
const MAGIC: &str = "archon-coordinator";
/// The same field in a node's data directory.
const MAGIC_OF_NODES: &str = "archon-node";
/// Format of a directory that was written by the first protocol alone. Its head is that of versions without other
/// protocols, so that these can be started on it again.
const FORMAT_FIRST: u32 = 2;
/// Newest format: it contains the protocol by which the directory was written.
const FORMAT: u32 = 3;
/// An identity has a few hundred bytes; a much larger file is none.
const BYTES_MAX: u64 = 64 * 1024;

/// Reason why a data directory is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The messages are the documentation of the fields.
pub enum IdentityError {
    #[error("cannot {action} {path}: {source}; check that the directory exists and is writable")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{dir} is {lock}; end it, or give this coordinator its own --data-dir")]
    Locked { dir: PathBuf, lock: LockError },
    #[error("{dir} is not a directory; give --data-dir a directory, or a path where one can be created")]
    NotADirectory { dir: PathBuf },
    #[error("{dir} is a node's data directory; give this coordinator its own (--data-dir)")]
    OfANode { dir: PathBuf },
    #[error(
        "{dir} holds a Raft log but no {FILE}; restore that file: a voter must not come back under another identity, \
         for \
         it would forget its votes"
    )]
    Missing { dir: PathBuf },
    #[error("{path} is damaged ({what}); restore the data directory from where it was")]
    Damaged { path: PathBuf, what: String },
    #[error("{path} has format {found}, this version reads up to {FORMAT}; start the newer version")]
    NewerFormat { path: PathBuf, found: u32 },
    #[error(
        "{dir} belongs to coordinator {found}, not {id}; start it with --id {found}, or give it another --data-dir"
    )]
    OtherId { dir: PathBuf, found: u64, id: u64 },
    #[error(
        "{path} has format {found}, but this version reads {FORMAT_FIRST} to {FORMAT}; start the version that wrote it"
    )]
    OlderFormat { path: PathBuf, found: u32 },
    #[error(
        "{dir} was written by protocol {found}, and this version speaks {speaks}; start a version that speaks {found}"
    )]
    OtherProtocol { dir: PathBuf, found: u32, speaks: ProtocolRange },
    #[error("{dir} is new: use --peers to found a quorum, or --join to join one")]
    New { dir: PathBuf },
    #[error(
        "{dir} has voted before, but its Raft log is gone; restore the directory, a voter must not forget its votes"
    )]
    LogLost { dir: PathBuf },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct IdentityFile {
    magic: String,
    format: u32,
    coordinator: u64,
    storage: Uuid,
    /// The key of its quorum; nil until a newcomer is admitted.
    quorum: Uuid,
    /// True if it founded the quorum.
    founder: bool,
    /// Its fellow founders, or the members at its admission: the members that it knows until its log names them.
    peers: BTreeMap<u64, String>,
    /// Raft was started here, so from now on an empty log means a lost one.
    started: bool,
    /// The newest protocol by which anything here may be written. Omitted for the first one, which [`FORMAT_FIRST`]
    /// implies.
    #[serde(default = "first_protocol", skip_serializing_if = "is_first_protocol")]
    protocol: u32,
}

const fn first_protocol() -> u32 {
    PROTOCOL_FIRST
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires it.
const fn is_first_protocol(protocol: &u32) -> bool {
    *protocol == PROTOCOL_FIRST
}

/// Returns the format of a directory that was written by this protocol.
const fn format_of(protocol: u32) -> u32 {
    if protocol == PROTOCOL_FIRST { FORMAT_FIRST } else { FORMAT }
}

/// A data directory owned by this process while the value lives.
#[derive(Debug)]
pub(crate) struct Identity {
    dir: PathBuf,
    stored: IdentityFile,
    _lock: Lock,
}

impl Identity {
    /// Opens or creates the identity of `dir`, and locks it. `has_log` returns true for a directory with a Raft log;
    /// one without an identity is refused then. A directory refused as another one's stays unchanged.
    pub(crate) fn open(
        dir: &Path,
        id: u64,
        start: Option<&FirstStart>,
        speaks: ProtocolRange,
        has_log: impl Fn(&Path) -> bool,
        mint: impl FnOnce() -> Uuid,
    ) -> Result<Self, IdentityError> {
        if dir.exists() && !dir.is_dir() {
            return Err(IdentityError::NotADirectory { dir: dir.to_path_buf() });
        }
        if read(&dir.join(FILE))?.is_none() && has_log(dir) {
            return Err(IdentityError::Missing { dir: dir.to_path_buf() });
        }
        archon_durable::create_directory(dir).map_err(|source| failed("create", dir, source))?;
        let lock = locked(dir)?;
        let mut stored = match read(&dir.join(FILE))? {
            Some(stored) => stored,
            None if has_log(dir) => return Err(IdentityError::Missing { dir: dir.to_path_buf() }),
            None => {
                let stored = IdentityFile {
                    magic: MAGIC.to_owned(),
                    format: format_of(speaks.oldest),
                    coordinator: id,
                    storage: mint(),
                    quorum: Uuid::nil(),
                    founder: false,
                    peers: BTreeMap::new(),
                    started: false,
                    protocol: speaks.oldest,
                };
                if start.is_some() {
                    write(dir, &stored)?;
                }
                stored
            }
        };
        if !speaks.contains(stored.protocol) {
            return Err(IdentityError::OtherProtocol { dir: dir.to_path_buf(), found: stored.protocol, speaks });
        }
        if stored.coordinator != id {
            return Err(IdentityError::OtherId { dir: dir.to_path_buf(), found: stored.coordinator, id });
        }
        match start {
            None if !stored.started => return Err(IdentityError::New { dir: dir.to_path_buf() }),
            // No other founder has this voter's vote yet: a mistake in the list can still be corrected.
            Some(FirstStart::Found { peers }) if !stored.started && stored.peers != *peers => {
                if !stored.peers.is_empty() {
                    tracing::info!(
                        before = list(&stored.peers),
                        now = list(peers),
                        "the peer list was changed before the start"
                    );
                }
                (stored.quorum, stored.founder, stored.peers) = (quorum_key(peers), true, peers.clone());
                write(dir, &stored)?;
            }
            _ => {}
        }
        Ok(Self { dir: dir.to_path_buf(), stored, _lock: lock })
    }

    /// Returns the identity of an unused directory; `None` if it is not a coordinator's.
    pub(crate) fn of_stopped(dir: &Path) -> Result<Option<Self>, IdentityError> {
        let Some(stored) = read(&dir.join(FILE))? else { return Ok(None) };
        Ok(Some(Self { dir: dir.to_path_buf(), stored, _lock: locked(dir)? }))
    }

    /// Writes the identity of a new directory for the only member of a quorum, as its log shows already.
    pub(crate) fn found_alone(
        dir: &Path,
        id: u64,
        (storage, quorum): (Uuid, Uuid),
        address: &str,
        protocol: u32,
    ) -> Result<(), IdentityError> {
        let peers = BTreeMap::from([(id, address.to_owned())]);
        let (magic, format) = (MAGIC.to_owned(), format_of(protocol));
        let (founder, started) = (false, true);
        write(dir, &IdentityFile { magic, format, coordinator: id, storage, quorum, founder, peers, started, protocol })
    }

    /// Returns its number.
    pub(crate) fn id(&self) -> u64 {
        self.stored.coordinator
    }

    /// Records the admission of this newcomer: the key of the quorum, and its members.
    pub(crate) fn set_joined(&mut self, quorum: Uuid, members: BTreeMap<u64, String>) -> Result<(), IdentityError> {
        (self.stored.quorum, self.stored.founder, self.stored.peers) = (quorum, false, members);
        write(&self.dir, &self.stored)
    }

    /// Returns the key of its quorum; `None` until a newcomer is admitted.
    pub(crate) fn quorum(&self) -> Option<Uuid> {
        Some(self.stored.quorum).filter(|quorum| !quorum.is_nil())
    }

    /// Returns true if it founded its quorum.
    pub(crate) fn is_founder(&self) -> bool {
        self.stored.founder
    }

    /// Returns the members that it knows until its log names them, with their addresses.
    pub(crate) fn peers(&self) -> &BTreeMap<u64, String> {
        &self.stored.peers
    }

    /// Returns the id of this directory.
    pub(crate) fn storage(&self) -> Uuid {
        self.stored.storage
    }

    /// Returns true if Raft was ever started here.
    pub(crate) fn is_started(&self) -> bool {
        self.stored.started
    }

    /// Records durably that Raft starts, before it does.
    pub(crate) fn mark_started(&mut self) -> Result<(), IdentityError> {
        if !self.stored.started {
            self.stored.started = true;
            write(&self.dir, &self.stored)?;
        }
        Ok(())
    }

    /// Returns the protocol by which the directory is written.
    pub(crate) fn protocol(&self) -> u32 {
        self.stored.protocol
    }

    /// Returns true if this protocol is newer than the directory's.
    pub(crate) fn lags(&self, protocol: u32) -> bool {
        protocol > self.stored.protocol
    }

    /// Returns the error for a panicked task that should have written this directory.
    pub(crate) fn task_failed(&self, error: tokio::task::JoinError) -> IdentityError {
        failed("write", &self.dir, io::Error::other(error))
    }

    /// Records durably the protocol by which this directory is written from now on, so that no version without that
    /// protocol is started on it. Blocks.
    pub(crate) fn record_protocol(&mut self, protocol: u32) -> Result<(), IdentityError> {
        if self.lags(protocol) {
            let stored = IdentityFile { protocol, format: format_of(protocol), ..self.stored.clone() };
            write(&self.dir, &stored)?;
            self.stored = stored;
        }
        Ok(())
    }
}

fn locked(dir: &Path) -> Result<Lock, IdentityError> {
    Lock::take(dir).map_err(|lock| match lock {
        LockError::Io { action, source } => failed(action, &dir.join(archon_durable::LOCK_FILE), source),
        lock => IdentityError::Locked { dir: dir.to_path_buf(), lock },
    })
}

fn read(path: &Path) -> Result<Option<IdentityFile>, IdentityError> {
    let damaged = |what: String| IdentityError::Damaged { path: path.to_path_buf(), what };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path, source)),
        Ok(metadata) if metadata.len() > BYTES_MAX => return Err(damaged(format!("{} bytes", metadata.len()))),
        Ok(_) => {}
    }
    let bytes = fs::read(path).map_err(|source| failed("read", path, source))?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    let magic = value.get("magic").and_then(serde_json::Value::as_str);
    if magic == Some(MAGIC_OF_NODES) {
        let dir = path.parent().unwrap_or(path).to_path_buf();
        return Err(IdentityError::OfANode { dir });
    }
    if magic != Some(MAGIC) {
        return Err(damaged(format!("its magic is not {MAGIC:?}")));
    }
    let format = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if format > u64::from(FORMAT) {
        let found = u32::try_from(format).unwrap_or(u32::MAX);
        return Err(IdentityError::NewerFormat { path: path.to_path_buf(), found });
    }
    if format < u64::from(FORMAT_FIRST) {
        return Err(IdentityError::OlderFormat { path: path.to_path_buf(), found: u32::try_from(format).unwrap_or(0) });
    }
    serde_json::from_value(value).map(Some).map_err(|error| damaged(error.to_string()))
}

fn write(dir: &Path, stored: &IdentityFile) -> Result<(), IdentityError> {
    let path = dir.join(FILE);
    let text = serde_json::to_vec_pretty(stored).map_err(|error| failed("encode", &path, io::Error::other(error)))?;
    archon_durable::replace(&path, &text).map_err(|source| failed("write", &path, source))
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

    fn founds(port: u16) -> FirstStart {
        FirstStart::Found { peers: peers(port) }
    }

    fn open(dir: &Path, has_log: impl Fn(&Path) -> bool) -> Result<Identity, IdentityError> {
        Identity::open(dir, 1, Some(&founds(1)), ProtocolRange::SPOKEN, has_log, Uuid::new_v4)
    }

    #[test]
    fn directory_keeps_its_identity() {
        let dir = tempfile::tempdir().unwrap();
        let open = |id, start: Option<&FirstStart>| {
            Identity::open(dir.path(), id, start, ProtocolRange::SPOKEN, |_| false, Uuid::new_v4)
        };
        assert!(matches!(open(1, None), Err(IdentityError::New { .. })));
        let mut first = open(1, Some(&founds(1))).unwrap();
        first.mark_started().unwrap();
        let (storage, quorum) = (first.storage(), first.quorum());
        assert!(matches!(open(1, None), Err(IdentityError::Locked { .. })));
        drop(first);
        assert!(matches!(open(2, None), Err(IdentityError::OtherId { found: 1, .. })));
        // From now on the log names the members.
        for start in [None, Some(&founds(9))] {
            let again = open(1, start).unwrap();
            assert_eq!((again.storage(), again.quorum(), again.peers()), (storage, quorum, &peers(1)));
        }
    }

    #[test]
    fn damage_and_newer_formats_are_refused_untouched() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), |_| false).unwrap());
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        for bad in ["", "{", "[]", "{\"magic\":\"other\"}", &text.replace("\"storage\"", "\"x\"")] {
            fs::write(&path, bad).unwrap();
            let found = open(dir.path(), |_| false);
            assert!(matches!(found, Err(IdentityError::Damaged { .. })), "{bad:?}");
        }
        let older = text.replace("\"format\": 2", "\"format\": 1");
        fs::write(&path, &older).unwrap();
        let found = open(dir.path(), |_| false).unwrap_err();
        assert!(found.to_string().contains("start the version that wrote it"), "{found}");
        let newer = text.replace("\"format\": 2", "\"format\": 4");
        fs::write(&path, &newer).unwrap();
        let found = open(dir.path(), |_| false);
        assert!(matches!(found, Err(IdentityError::NewerFormat { found: 4, .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), newer);
    }

    #[test]
    fn log_without_identity_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = open(dir.path(), |_| true).unwrap_err();
        assert!(matches!(refused, IdentityError::Missing { .. }), "{refused}");
        assert!(refused.to_string().contains("restore that file"), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a refused directory stays as it was");
    }

    #[test]
    fn peer_list_can_be_corrected_before_first_start() {
        let dir = tempfile::tempdir().unwrap();
        let open =
            |port| Identity::open(dir.path(), 1, Some(&founds(port)), ProtocolRange::SPOKEN, |_| false, Uuid::new_v4);
        let slip = open(9).unwrap();
        let (storage, quorum) = (slip.storage(), slip.quorum());
        drop(slip);
        let mut corrected = open(1).unwrap();
        assert_eq!(corrected.storage(), storage);
        assert_ne!(corrected.quorum(), quorum);
        corrected.mark_started().unwrap();
        drop(corrected);
        assert_eq!(open(9).unwrap().peers(), &peers(1), "from now on the list does not matter");
    }

    #[test]
    fn nodes_directory_is_refused_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let text = "{\"magic\": \"archon-node\", \"format\": 1, \"name\": \"athens\"}";
        fs::write(dir.path().join(FILE), text).unwrap();
        let refused = open(dir.path(), |_| false).unwrap_err();
        assert!(matches!(refused, IdentityError::OfANode { .. }), "{refused}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a refused directory stays as it was");
        let file = dir.path().join(FILE);
        assert!(matches!(open(&file, |_| false), Err(IdentityError::NotADirectory { .. })));
    }

    #[test]
    fn directory_of_newer_protocol_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let start = |speaks| Identity::open(dir.path(), 1, Some(&founds(1)), speaks, |_| false, Uuid::new_v4);
        let text = || fs::read_to_string(dir.path().join(FILE)).unwrap();
        start(ProtocolRange::SPOKEN).unwrap().record_protocol(PROTOCOL_FIRST).unwrap();
        assert!(text().contains("\"format\": 2") && !text().contains("protocol"), "older versions read it: {}", text());
        drop(start(ProtocolRange::FIRST).unwrap());
        let mut upgraded = start(ProtocolRange::SPOKEN).unwrap();
        upgraded.record_protocol(2).unwrap();
        upgraded.record_protocol(1).unwrap();
        drop(upgraded);
        let before = text();
        assert!(before.contains("\"format\": 3"), "versions that know of no protocol refuse it: {before}");
        let error = start(ProtocolRange::FIRST).unwrap_err().to_string();
        assert!(
            error.contains("written by protocol 2, and this version speaks 1; start a version that speaks 2"),
            "{error}"
        );
        assert_eq!(text(), before);
        assert!(!start(ProtocolRange::SPOKEN).unwrap().lags(2));
    }
}
