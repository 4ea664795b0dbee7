//! Wrapper around openraft, and the only module that names it: types, storage, network, and a handle with our own
//! types.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod identity;
mod log;
mod machine;
mod network;
mod quorum;
mod snapshot;
mod types;

pub(crate) use identity::generations::Standby;
pub(crate) use identity::kept_marks::KeptMarks;
pub(crate) use identity::protocol_support::ProtocolSupport;
pub(crate) use log::low_space::LowSpace;
pub use log::store::StoreError;
pub(crate) use machine::checksums::{Checksums, StateDifference};
pub(crate) use machine::{ReplicatedState, TableVersions};
pub(crate) use network::connect;
pub(crate) use network::distances::FarStreaks;
pub(crate) use network::hello::{Answers, HelloQuestions, ask_all, boot_at, check_distance};
pub(crate) use network::peers::Peers;
pub(crate) use network::wire::{LocalVoter, quorum_key};
pub(crate) use quorum::Quorum;
pub(crate) use quorum::propose::Proposal;
pub(crate) use quorum::transfer::TRANSFER_DEADLINE;
pub(crate) use quorum::voter_view::{QuorumView, VoterView, read_only, spare};
pub use snapshot::SnapshotError;
pub(crate) use snapshot::survivor::{Founder, read_directory, read_snapshot, write_directory};

use crate::error::CoordinatorError;
use crate::quorum::timing::QuorumTiming;
use archon_security::Transport;
use archon_wal::disk::{Disk, RealDisk};
use archon_wal::{WalConfig, WalError};
use log::log_space::LogSpace;
use log::store::LogStore;
use machine::Machine;
use network::Network;
use network::hints::Hints;
use network::peers::{RaftHandles, SNAPSHOT_DEADLINE};
use openraft::{Config, SnapshotPolicy};
use quorum::voter_reports::VoterReports;
use snapshot::SnapshotDir;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const SNAPSHOTS_DIR: &str = "snapshots";
const LOG_DIR: &str = "raft-log";

/// Returns openraft's settings, with the reason for each that differs from the default.
fn config(timing: QuorumTiming) -> Result<Arc<Config>, CoordinatorError> {
    let (election_timeout_min, election_timeout_max) = timing.election_ms();
    let config = Config {
        cluster_name: "archon".to_owned(),
        // openraft abandons an answer to a heartbeat when the next one is due.
        heartbeat_interval: timing.heartbeat_ms(),
        election_timeout_min,
        election_timeout_max,
        // A voter that was cut off does not depose a leader that others hear.
        enable_pre_vote: Some(true),
        // A restarted leader needs another election: it has lost the list of leases it granted.
        enable_leader_restore: Some(false),
        // Without it a leader that lost its quorum can hold up elections.
        quorum_loss_probe_interval: Some(2 * election_timeout_max),
        // A voter may report that it lacks what it had: an older copy of its directory, before it is ended (rule 58).
        // Leader and majority lose nothing by sending that again; otherwise openraft panics in development builds, and
        // in others no longer sends to it.
        allow_log_reversion: Some(true),
        // Entries are small and the state is large.
        snapshot_policy: SnapshotPolicy::LogsSinceLast(50_000),
        // The kept entries must outlast the transfer of a snapshot, and the lag threshold must lie above the policy.
        max_in_snapshot_log_to_keep: 20_000,
        replication_lag_threshold: 100_000,
        purge_batch_size: 1_000,
        max_payload_entries: 2_048,
        max_append_entries: Some(4_096),
        // The default of 200 ms ends every larger transfer.
        install_snapshot_timeout: SNAPSHOT_DEADLINE.as_millis() as u64,
        // Beyond it our own semaphore refuses, retryably.
        api_channel_size: Some(4_096),
        backoff: "50ms 100ms 200ms 500ms ...1s".to_owned(),
        ..Config::default()
    };
    let config = config.validate().map_err(|error| CoordinatorError::Raft { what: error.to_string() })?;
    Ok(Arc::new(config))
}

/// Opens the log directory of `data_dir`.
fn log_disk(data_dir: &Path) -> Result<(RealDisk, PathBuf), StoreError> {
    let directory = data_dir.join(LOG_DIR);
    let disk = RealDisk::open(&directory).map_err(|source| {
        let path = directory.display().to_string();
        StoreError::from(WalError::Io { action: "open the log directory", path, source })
    })?;
    Ok((disk, directory))
}

/// Vote, log and snapshots of one data directory, opened and checked.
pub(crate) struct Storage {
    log: LogStore,
    /// Path of the log, for messages.
    directory: PathBuf,
    replicated: Arc<ReplicatedState>,
}

impl Storage {
    /// Opens the content of `data_dir`. Blocks: files are read.
    pub(crate) fn open(data_dir: &Path, local_voter: &LocalVoter) -> Result<Self, CoordinatorError> {
        let snapshots = SnapshotDir::open(&data_dir.join(SNAPSHOTS_DIR), local_voter.quorum)?;
        Self::open_log(data_dir, snapshots, local_voter.spoken.clone())
    }

    /// Opens the log of `data_dir`, beside its snapshots.
    fn open_log(data_dir: &Path, snapshots: SnapshotDir, spoken: ProtocolSupport) -> Result<Self, CoordinatorError> {
        let (disk, directory) = log_disk(data_dir)?;
        Self::open_on(Arc::new(disk), directory, WalConfig::default(), (snapshots, spoken))
    }

    /// Opens a log on any disk, beside its snapshots; `directory` is for messages.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        config: WalConfig,
        (snapshots, spoken): (SnapshotDir, ProtocolSupport),
    ) -> Result<Self, CoordinatorError> {
        let covered = || Ok(snapshots.newest()?.and_then(|(meta, _)| meta.last_log_id));
        let log = LogStore::open(disk, config, covered)?;
        Ok(Self { log, directory, replicated: ReplicatedState::new(snapshots, spoken) })
    }

    /// Returns true if neither a vote nor an entry was ever written.
    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Returns the address of this coordinator in the log or the snapshots, if they name it. Blocks: a snapshot may be
    /// read.
    pub(crate) fn address_of(&self, id: u64) -> Result<Option<String>, CoordinatorError> {
        let of_log = self.log.newest_members();
        let members = match of_log {
            Some(members) => Some(members),
            None => self.replicated.newest_snapshot()?.map(|meta| meta.last_membership.membership().clone()),
        };
        Ok(members.and_then(|members| members.get_node(&id).map(|voter| voter.address.clone())))
    }

    /// Returns true if `data_dir` has ever held a log.
    pub(crate) fn has_log(data_dir: &Path) -> bool {
        std::fs::read_dir(data_dir.join(LOG_DIR)).is_ok_and(|mut files| files.next().is_some())
    }
}

/// Returns the index of this voter's last entry, in its log or in a snapshot that replaced it.
async fn last_index(storage: &Storage) -> Result<u64, CoordinatorError> {
    let replicated = Arc::clone(&storage.replicated);
    let newest = tokio::task::spawn_blocking(move || replicated.newest_snapshot()).await;
    let newest = newest.map_err(|error| CoordinatorError::Task { task: "snapshot", what: error.to_string() })??;
    let of_snapshot = newest.and_then(|meta| meta.last_log_id).map_or(0, |last| last.index);
    Ok(of_snapshot.max(storage.log.last_index()))
}

/// Starts Raft on opened storage and lets the peers reach it. `founders`: coordinators known before the log names any;
/// `said`: address hints for members. The returned tasks end with `stop`.
pub(crate) async fn start(
    storage: Storage,
    transport: Transport,
    local_voter: LocalVoter,
    (founders, said): (Arc<BTreeMap<u64, String>>, BTreeMap<u64, String>),
    peers: &Peers,
    stop: &CancellationToken,
) -> Result<(Quorum, [(&'static str, tokio::task::JoinHandle<()>); 9]), CoordinatorError> {
    local_voter.marks.log_ends_at(last_index(&storage).await?);
    let wal = storage.log.wal().clone();
    let log_size = storage.log.size();
    let space = LogSpace::new(wal.clone(), storage.directory);
    let replicated = Arc::clone(&storage.replicated);
    let checksums = local_voter.checksums.clone();
    let machine = Machine::new(Arc::clone(&replicated), checksums.clone());
    let term = storage.log.own_term();
    let voter_reports = VoterReports::default();
    let network = Network::new(
        transport.clone(),
        local_voter.clone(),
        term.clone(),
        voter_reports.clone(),
        replicated.addresses().clone(),
    );
    let raft = machine::raft::Raft::build(local_voter.id, config(local_voter.timing)?, network, storage.log, machine)
        .await
        .map_err(|error| CoordinatorError::Raft { what: error.to_string() })?;
    peers.set(RaftHandles {
        raft: raft.clone(),
        term,
        space: space.clone(),
        replicated: Arc::clone(&replicated),
        transport: transport.clone(),
    });
    raft.run();
    let hints = Hints::new(said, replicated.addresses().clone());
    let heard = (raft.clone(), peers.introductions().clone(), Arc::clone(&replicated));
    let hinted = hints.clone().run(heard, local_voter.clone(), peers.boot(), transport.clone(), stop.clone());
    let hinted = tokio::spawn(hinted);
    let size = tokio::spawn(log::trim::run(raft.clone(), log_size.clone(), space.clone(), stop.clone()));
    let introductions = peers.introductions().clone();
    let introduced = introductions.clone().run(
        raft.clone(),
        Arc::clone(&replicated),
        local_voter.clone(),
        Arc::clone(&founders),
        transport.clone(),
        stop.clone(),
    );
    let introduced = tokio::spawn(introduced);
    let compared = tokio::spawn(checksums.run(raft.clone(), stop.clone()));
    let marks = tokio::spawn(local_voter.marks.clone().run(raft.clone(), stop.clone()));
    let (quorum, rounds) = Quorum::new(
        raft,
        local_voter,
        founders,
        replicated,
        (wal, log_size, space, voter_reports, introductions, peers.generations().clone(), hints),
        stop,
    );
    let short = tokio::spawn(log::short::run(quorum.clone(), stop.clone()));
    let generations = tokio::spawn(identity::later_generations::run(quorum.clone(), transport.clone(), stop.clone()));
    let measured = tokio::spawn(network::measure_distances::run(quorum.clone(), transport, stop.clone()));
    let tasks = [
        ("quorum rounds", rounds),
        ("log size", size),
        ("space", short),
        ("introductions", introduced),
        ("generations", generations),
        ("voters", marks),
        ("hints", hinted),
        ("checksums", compared),
        ("distances", measured),
    ];
    Ok((quorum, tasks))
}
