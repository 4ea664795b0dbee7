//! Recovery of a new generation from the remains of a quorum: offline, into a new directory, so that the remains stay
//! unchanged (PROTOCOL rule 60, [ADR 0055](../../docs/design/adr/0055-a-majority-that-is-lost.md)).

pub(crate) mod snapshot_file;

use crate::clock::wall_now;
use crate::error::CoordinatorError;
use crate::identity::{Identity, IdentityError};
use crate::raft::{Founder, SnapshotError, read_directory, read_snapshot, write_directory};
use archon_coordinator_core::{ClusterState, Coordinator, RecoveryError, begin_generation};
use archon_durable::LockError;
use archon_types::{GenerationKey, PROTOCOL_FIRST, StorageId, limits::check_address};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Reason why nothing is recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// It is neither a coordinator's directory nor a file.
    #[error("{} is neither a coordinator's data directory nor a snapshot file", from.display())]
    Nothing {
        /// The given path.
        from: PathBuf,
    },
    /// A process uses the directory.
    #[error("{} is {lock}: stop that coordinator first, and make sure that it is not started again", from.display())]
    InUse {
        /// The given path.
        from: PathBuf,
        /// The lock of the process.
        lock: LockError,
    },
    /// It is a node's directory.
    #[error("{} is a node's data directory: name a coordinator's, or a file of `archon quorum snapshot save`", from.display())]
    OfANode {
        /// The given path.
        from: PathBuf,
    },
    /// The file has changed since it was written.
    #[error("snapshot {} is damaged ({what}): use another copy of it, or a coordinator's data directory", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The mismatch.
        what: String,
    },
    /// The remains cannot be read.
    #[error("{} cannot be read: {why}", from.display())]
    Unreadable {
        /// The given path.
        from: PathBuf,
        /// Cause.
        #[source]
        why: CoordinatorError,
    },
    /// No generation can begin with it.
    #[error("{} is of no use: {why}", from.display())]
    Useless {
        /// The given path.
        from: PathBuf,
        /// Cause.
        #[source]
        why: RecoveryError,
    },
    /// The new directory exists already.
    #[error("{} exists already; give --into a new path", into.display())]
    NotNew {
        /// The directory.
        into: PathBuf,
    },
    /// The path for a file is taken.
    #[error("{} exists already, and is not written over; name another file", path.display())]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// A directory where a snapshot file is required.
    #[error("{} is a directory; name a snapshot file", path.display())]
    NoFile {
        /// The given path.
        path: PathBuf,
    },
    /// The address is invalid.
    #[error("{why}")]
    Address {
        /// Reason.
        why: String,
    },
    /// The new directory cannot be written.
    #[error("{} cannot be written: {why}; remove it before trying again", into.display())]
    Unwritable {
        /// The directory.
        into: PathBuf,
        /// Cause.
        #[source]
        why: CoordinatorError,
    },
}

impl RecoverError {
    /// Converts an error of a starting coordinator to one about the remains.
    fn unreadable(from: PathBuf, why: CoordinatorError) -> Self {
        match why {
            CoordinatorError::Identity(IdentityError::Locked { lock, .. }) => Self::InUse { from, lock },
            CoordinatorError::Identity(IdentityError::OfANode { .. }) => Self::OfANode { from },
            CoordinatorError::Snapshot(SnapshotError::Damaged { path, what }) => Self::Damaged { path, what },
            why => Self::Unreadable { from, why },
        }
    }
}

/// Remains of a quorum.
#[derive(Debug)]
pub struct Survivor {
    from: PathBuf,
    state: ClusterState,
    /// Number of the coordinator, if it is a coordinator's directory.
    id: Option<u64>,
}

/// Summary of the remains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SurvivorSummary {
    /// The cluster's UUID.
    pub cluster: String,
    /// Number of the coordinator, if it is a coordinator's directory.
    pub coordinator: Option<u64>,
    /// Its generation.
    pub generation: u64,
    /// The key of that, if it has one: it distinguishes generations of that number.
    pub generation_key: Option<GenerationKey>,
    /// The last entry of the log that it holds.
    pub last_index: u64,
    /// Unix time of its last event, on the wall clocks of the coordinators.
    pub last_event_at_ms: Option<u64>,
    /// Number of nodes, tables and partitions in it.
    pub nodes: usize,
    /// See `nodes`.
    pub tables: usize,
    /// See `nodes`.
    pub partitions: usize,
    /// The coordinators that it knows, with their addresses.
    pub coordinators: Vec<(u64, String)>,
}

/// Founder of the new generation.
#[derive(Clone, Debug)]
pub struct NewGeneration {
    /// The directory to create.
    pub into: PathBuf,
    /// The founder's number.
    pub id: u64,
    /// Address at which nodes and other coordinators reach it.
    pub address: String,
    /// Must be above every generation in which any node has lived; `None`: the next one.
    pub generation: Option<u64>,
}

impl Survivor {
    /// Reads a stopped coordinator's directory or a snapshot file. Blocks.
    ///
    /// # Errors
    /// [`RecoverError`]; a directory in use is refused.
    pub fn read(from: &Path) -> Result<Self, RecoverError> {
        let unreadable = |why: CoordinatorError| RecoverError::unreadable(from.to_path_buf(), why);
        let (state, id) = if from.is_dir() {
            let identity = Identity::of_stopped(from).map_err(|why| unreadable(why.into()))?;
            let Some(identity) = identity else { return Err(RecoverError::Nothing { from: from.to_path_buf() }) };
            let quorum = identity.quorum().unwrap_or_default();
            (read_directory(from, quorum).map_err(unreadable)?, Some(identity.id()))
        } else if from.is_file() {
            (read_snapshot(from).map_err(unreadable)?, None)
        } else {
            return Err(RecoverError::Nothing { from: from.to_path_buf() });
        };
        Ok(Self { from: from.to_path_buf(), state, id })
    }

    /// Like [`Survivor::read`], for a snapshot file only. Blocks.
    ///
    /// # Errors
    /// [`RecoverError`]
    pub fn read_file(file: &Path) -> Result<Self, RecoverError> {
        if file.is_dir() {
            return Err(RecoverError::NoFile { path: file.to_path_buf() });
        }
        Self::read(file)
    }

    /// Returns its summary.
    pub fn summary(&self) -> SurvivorSummary {
        let state = &self.state;
        let members = state.coordinators.members.iter();
        SurvivorSummary {
            cluster: state.cluster.to_string(),
            coordinator: self.id,
            generation: state.generation,
            generation_key: Some(state.generation_key(state.generation)).filter(|key| !key.is_nil()),
            last_index: state.applied,
            last_event_at_ms: state.events.back().map(|event| event.at.get()),
            nodes: state.nodes.len(),
            tables: state.tables.len(),
            partitions: state.partitions.len(),
            coordinators: members.map(|(id, member)| (*id, member.address.clone())).collect(),
        }
    }

    /// Creates the directory of the coordinator with which the new generation begins. Returns its number. Blocks.
    ///
    /// # Errors
    /// [`RecoverError`]. The remains of the quorum stay unchanged in any case.
    pub fn begin(mut self, new: &NewGeneration) -> Result<u64, RecoverError> {
        check_address(&new.address).map_err(|why| RecoverError::Address { why: why.to_string() })?;
        if new.into.exists() {
            return Err(RecoverError::NotNew { into: new.into.clone() });
        }
        let generation = new.generation.unwrap_or(self.state.generation.saturating_add(1));
        let (storage, quorum) = (Uuid::new_v4(), Uuid::new_v4());
        let coordinator = Coordinator { address: new.address.clone(), storage: StorageId::new(storage), voter: true };
        let key = GenerationKey::new(Uuid::new_v4());
        begin_generation(&mut self.state, (generation, key), wall_now(), (new.id, coordinator))
            .map_err(|why| RecoverError::Useless { from: self.from.clone(), why })?;
        let founder = Founder { id: new.id, storage, address: new.address.clone(), quorum };
        self.write(new, &founder).map_err(|why| RecoverError::Unwritable { into: new.into.clone(), why })?;
        Ok(generation)
    }

    /// Writes the directory, the identity last: a directory without one is refused at a start.
    fn write(&self, new: &NewGeneration, founder: &Founder) -> Result<(), CoordinatorError> {
        let made = archon_durable::create_directory(&new.into);
        made.map_err(|source| IdentityError::Io { action: "create", path: new.into.clone(), source })?;
        write_directory(&new.into, &self.state, founder)?;
        let (keys, protocol) = ((founder.storage, founder.quorum), self.state.protocol.max(PROTOCOL_FIRST));
        Identity::found_alone(&new.into, founder.id, keys, &founder.address, protocol)?;
        Ok(())
    }
}
