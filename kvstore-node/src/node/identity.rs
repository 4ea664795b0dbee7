//! Data directory of a node: its owner, and its lock.
//!
//! `LOCK` is held by `flock` for the lifetime of the process. `identity.json` names the directory's storage id, minted
//! at creation, and what the coordinator assigned since. It is replaced as a whole (temporary file, fsync, rename,
//! fsync of the directory), so that a crash leaves the old or the new one.

use crate::engine::is_full;
use archon_durable::{LOCK_FILE, Lock, LockError};
use archon_types::{
    ClusterId, GenerationKey, Incarnation, NodeId, PROTOCOL_FIRST, ProtocolRange, StorageId, generation_of,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const MAGIC: &str = "archon-node";
/// The magic in a coordinator's data directory.
const MAGIC_OF_COORDINATORS: &str = "archon-coordinator";
/// The format of a directory written by the first protocol alone. Versions that know no other protocol use it too, so
/// they can be started on it again.
const FORMAT_FIRST: u32 = 1;
/// The newest format, which names the protocol that the directory was written by.
const FORMAT: u32 = 2;
const IDENTITY_FILE: &str = "identity.json";
const TEMPORARY_FILE: &str = "identity.json.tmp";
const WAL_DIRECTORY: &str = "wal";
const ENGINE_DIRECTORY: &str = "engine";

/// Identity stored in a data directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Minted when the directory was created.
    pub storage_id: StorageId,
    /// The cluster it belongs to; nil until the first registration.
    pub cluster_id: ClusterId,
    /// The operator's name for the node.
    pub name: String,
    /// The node's number; zero until the first registration.
    pub node_id: NodeId,
    /// The incarnation of the last registration; zero until the first.
    pub last_incarnation: Incarnation,
    /// Key of the generation of that registration; nil, and not written, if it has none.
    #[serde(default, skip_serializing_if = "is_no_key")]
    pub generation_key: GenerationKey,
    /// The newest protocol that may have been used to write here. Not written for the first one, which [`FORMAT_FIRST`]
    /// implies.
    #[serde(default = "first_protocol", skip_serializing_if = "is_first_protocol")]
    pub protocol: u32,
}

const fn first_protocol() -> u32 {
    PROTOCOL_FIRST
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires it.
const fn is_first_protocol(protocol: &u32) -> bool {
    *protocol == PROTOCOL_FIRST
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires it.
const fn is_no_key(key: &GenerationKey) -> bool {
    key.is_nil()
}

/// The file's head, read before the rest.
#[derive(Serialize, Deserialize)]
struct Head {
    magic: String,
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct IdentityFile {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    identity: Identity,
}

/// Reason why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Another process uses it.
    #[error("the data directory {} is in use by another process{holder}; stop it, or give this node its own \
             directory", directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process, if known.
        holder: String,
    },
    /// The operating system refused an operation.
    #[error("could not {what} in the data directory {}: {source}; check that it is writable and has space", directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// The operation.
        what: &'static str,
        /// Its error.
        source: std::io::Error,
    },
    /// The file is not an identity.
    #[error("{} is not a node's identity: {why}; restore it from a backup, or start with an empty directory (as a new \
             node)", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// There is data without an identity.
    #[error("the data directory {} holds data but no {IDENTITY_FILE}; restore that file, or start with an empty \
             directory (as a new node)", directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
    },
    /// The data directory is not a directory.
    #[error("{} is not a directory; give --data-dir a directory, or a path where one can be created", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The data directory is a coordinator's.
    #[error("{} is a coordinator's data directory; give this node its own (--data-dir)", directory.display())]
    OfACoordinator {
        /// The directory.
        directory: PathBuf,
    },
    /// A newer version wrote it. It was not touched.
    #[error("{} has format {found}, this version reads up to {FORMAT}; run the newer version", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u32,
    },
    /// The cluster was upgraded since this version ran on it, or not yet. It was not touched.
    #[error("the data directory {} was written by protocol {found}, and this version speaks {speaks}; start a version \
             that speaks {found}", directory.display())]
    OtherProtocol {
        /// The directory.
        directory: PathBuf,
        /// Its protocol.
        found: u32,
        /// The protocols supported here.
        speaks: ProtocolRange,
    },
    /// The data directory belongs to another node.
    #[error("the data directory {} belongs to the node {found:?}, not to {wanted:?}; correct --name or --data-dir", directory.display())]
    WrongName {
        /// The directory.
        directory: PathBuf,
        /// Its owner.
        found: String,
        /// The present node.
        wanted: String,
    },
    /// The data directory belongs to another cluster.
    #[error("the data directory {} belongs to cluster {found}, not to {wanted}; correct --coordinators or --data-dir", directory.display())]
    WrongCluster {
        /// The directory.
        directory: PathBuf,
        /// Its cluster.
        found: ClusterId,
        /// The cluster met.
        wanted: ClusterId,
    },
    /// The data directory was registered in another generation of the same number.
    #[error("the data directory {} was registered in another generation {generation} of this cluster: one number was \
             given to two recoveries; stop these coordinators if others are to be kept, or recover these again with \
             --generation {}", directory.display(), generation + 1)]
    OtherHistory {
        /// The directory.
        directory: PathBuf,
        /// The generation.
        generation: u64,
    },
    /// The coordinator knows its storage id under another number, or gave an older incarnation.
    #[error("the data directory {} is registered as node {found_node}, incarnation {found_incarnation}, but the \
             coordinators assign node {node}, incarnation {incarnation}; they may have been restored from a backup", directory.display())]
    Contradiction {
        /// The directory.
        directory: PathBuf,
        /// The number stored.
        found_node: NodeId,
        /// The incarnation stored.
        found_incarnation: Incarnation,
        /// The number assigned.
        node: NodeId,
        /// The incarnation assigned.
        incarnation: Incarnation,
    },
}

impl IdentityError {
    /// Returns whether a full disk is the cause: space, inodes or a quota.
    pub(crate) fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source.kind()))
    }
}

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    path: PathBuf,
    identity: Identity,
    _lock: Lock,
}

impl DataDirectory {
    /// Opens the directory of the node `name`, creating it with a new storage id if it is missing or empty, and locks
    /// it. `cluster` is the cluster that the node has to join, if configured.
    ///
    /// # Errors
    /// [`IdentityError`]; an existing directory is then unchanged, except for its lock file.
    pub(crate) fn open(
        path: &Path,
        name: &str,
        speaks: ProtocolRange,
        cluster: Option<ClusterId>,
    ) -> Result<Self, IdentityError> {
        if path.exists() {
            if !path.is_dir() {
                return Err(IdentityError::NotADirectory { path: path.to_owned() });
            }
            // Before the lock file is created: a foreign directory stays as it was.
            if read(path)?.is_none() && has_data(path).map_err(io(path, "list the files"))? {
                return Err(IdentityError::Missing { directory: path.to_owned() });
            }
        }
        archon_durable::create_directory(path).map_err(io(path, "make anything"))?;
        let lock = lock(path)?;
        let identity = match read(path)? {
            Some(identity) => identity,
            None => {
                if has_data(path).map_err(io(path, "list the files"))? {
                    return Err(IdentityError::Missing { directory: path.to_owned() });
                }
                let identity = Identity {
                    storage_id: StorageId::new(Uuid::new_v4()),
                    cluster_id: ClusterId::NIL,
                    name: name.to_owned(),
                    node_id: NodeId::ZERO,
                    last_incarnation: Incarnation::ZERO,
                    generation_key: GenerationKey::NIL,
                    protocol: speaks.oldest,
                };
                write(path, &identity)?;
                identity
            }
        };
        if !speaks.contains(identity.protocol) {
            let (directory, found) = (path.to_owned(), identity.protocol);
            return Err(IdentityError::OtherProtocol { directory, found, speaks });
        }
        if identity.name != name {
            return Err(IdentityError::WrongName {
                directory: path.to_owned(),
                found: identity.name,
                wanted: name.to_owned(),
            });
        }
        let opened = Self { path: path.to_owned(), identity, _lock: lock };
        cluster.map_or(Ok(()), |cluster| opened.check_cluster(cluster))?;
        Ok(opened)
    }

    /// Returns the stored identity.
    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the directory of the write-ahead log.
    pub(crate) fn wal_directory(&self) -> PathBuf {
        self.path.join(WAL_DIRECTORY)
    }

    /// Returns the directory of the engine.
    pub(crate) fn engine_directory(&self) -> PathBuf {
        self.path.join(ENGINE_DIRECTORY)
    }

    /// Refuses a cluster other than the one this directory belongs to, if any.
    ///
    /// # Errors
    /// [`IdentityError::WrongCluster`].
    pub(crate) fn check_cluster(&self, wanted: ClusterId) -> Result<(), IdentityError> {
        let found = self.identity.cluster_id;
        if !found.is_nil() && found != wanted {
            return Err(IdentityError::WrongCluster { directory: self.path.clone(), found, wanted });
        }
        Ok(())
    }

    /// Stores the answer to a registration durably, before the node acts under it (PROTOCOL rule 19).
    ///
    /// # Errors
    /// [`IdentityError::WrongCluster`], [`IdentityError::OtherHistory`], [`IdentityError::Contradiction`] or
    /// [`IdentityError::Io`]; the stored identity is then unchanged.
    pub(crate) fn record_registration(
        &mut self,
        cluster: ClusterId,
        node: NodeId,
        (incarnation, generation_key): (Incarnation, GenerationKey),
    ) -> Result<(), IdentityError> {
        self.check_cluster(cluster)?;
        let known = self.identity.node_id;
        let last = self.identity.last_incarnation;
        let [generation, before] = [incarnation, last].map(|incarnation| generation_of(incarnation.get()));
        if last != Incarnation::ZERO && generation == before && generation_key != self.identity.generation_key {
            return Err(IdentityError::OtherHistory { directory: self.path.clone(), generation });
        }
        // Recovered coordinators may not know this directory, and assign another number.
        let recovered = generation > before;
        if (known != NodeId::ZERO && known != node && !recovered) || incarnation < last {
            return Err(IdentityError::Contradiction {
                directory: self.path.clone(),
                found_node: known,
                found_incarnation: self.identity.last_incarnation,
                node,
                incarnation,
            });
        }
        let identity = Identity {
            cluster_id: cluster,
            node_id: node,
            last_incarnation: incarnation,
            generation_key,
            ..self.identity.clone()
        };
        if identity != self.identity {
            write(&self.path, &identity)?;
            self.identity = identity;
        }
        Ok(())
    }

    /// Returns the error of a task that panicked while writing this directory.
    pub(crate) fn task_failed(&self, error: tokio::task::JoinError) -> IdentityError {
        io(&self.path, "run a task that writes")(std::io::Error::other(error))
    }

    /// Stores durably the protocol that this directory is written by from now on; it only rises.
    ///
    /// # Errors
    /// [`IdentityError::Io`]; the stored identity is then unchanged.
    pub(crate) fn record_protocol(&mut self, protocol: u32) -> Result<(), IdentityError> {
        if protocol > self.identity.protocol {
            let identity = Identity { protocol, ..self.identity.clone() };
            write(&self.path, &identity)?;
            self.identity = identity;
        }
        Ok(())
    }
}

fn io<'a>(directory: &'a Path, what: &'static str) -> impl FnOnce(std::io::Error) -> IdentityError + 'a {
    move |source| IdentityError::Io { directory: directory.to_owned(), what, source }
}

fn lock(directory: &Path) -> Result<Lock, IdentityError> {
    Lock::take(directory).map_err(|error| match error {
        LockError::Held { process } => {
            let holder = process.map_or_else(String::new, |process| format!(" (process {process})"));
            IdentityError::InUse { directory: directory.to_owned(), holder }
        }
        LockError::Io { source, .. } => io(directory, "lock it")(source),
    })
}

fn has_data(directory: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name != LOCK_FILE && name != TEMPORARY_FILE && name != "lost+found" {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn read(directory: &Path) -> Result<Option<Identity>, IdentityError> {
    let path = directory.join(IDENTITY_FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(directory, "read the identity")(error)),
    };
    let malformed = |why: String| IdentityError::Malformed { path: path.clone(), why };
    // The head first: changes of a newer version in the rest must not look like damage.
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    if head.magic == MAGIC_OF_COORDINATORS {
        return Err(IdentityError::OfACoordinator { directory: directory.to_owned() });
    }
    if head.magic != MAGIC {
        return Err(malformed(format!("its magic is {:?}, not {MAGIC:?}", head.magic)));
    }
    if head.format > FORMAT {
        return Err(IdentityError::NewerFormat { path, found: head.format });
    }
    let identity: Identity = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    if identity.storage_id.is_nil() {
        return Err(malformed("its storage id is nil".into()));
    }
    Ok(Some(identity))
}

/// Returns the file's contents.
pub(crate) fn encode(identity: &Identity) -> std::io::Result<Vec<u8>> {
    let format = if identity.protocol == PROTOCOL_FIRST { FORMAT_FIRST } else { FORMAT };
    let stored = IdentityFile { head: Head { magic: MAGIC.into(), format }, identity: identity.clone() };
    Ok(serde_json::to_vec_pretty(&stored)?)
}

fn write(directory: &Path, identity: &Identity) -> Result<(), IdentityError> {
    let replace = || {
        let mut text = encode(identity)?;
        text.push(b'\n');
        archon_durable::replace(&directory.join(IDENTITY_FILE), &text)
    };
    replace().map_err(io(directory, "write the identity"))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
