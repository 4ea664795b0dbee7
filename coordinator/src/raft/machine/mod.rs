//! The replicated state in memory, and openraft's state machine over it.

pub(crate) mod checksum_task;
#[cfg(test)]
mod checksum_tests;
pub(super) mod checksums;
pub(crate) mod raft;
#[cfg(test)]
mod table_versions_tests;

use super::identity::protocol_support::ProtocolSupport;
use super::log::codec;
use super::machine::checksums::Checksums;
use super::network::addresses::Addresses;
use super::snapshot::{SnapshotDir, SnapshotError};
use super::types::{BatchResult, Entry, LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use crate::raft::quorum::members::members_of;
use archon_coordinator_core::{ClusterState, Command, apply, members_changed, skip};
use archon_types::{TableId, Version};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Pause before a snapshot that lacked space is retried.
const SNAPSHOT_RETRY: Duration = Duration::from_secs(1);

struct AppliedState {
    state: ClusterState,
    applied: Option<LogId>,
    membership: StoredMembership,
}

/// Versions that determine the answer to a long poll for a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableVersions {
    /// Version of the table; `None` if it does not exist.
    pub(crate) table: Option<Version>,
    /// Version of all rights.
    pub(crate) access: Version,
}

impl TableVersions {
    fn of(state: &ClusterState, table: TableId) -> Self {
        let version = state.tables.contains_key(&table).then(|| state.version_of(table));
        Self { table: version, access: state.access_version }
    }
}

/// State made by the log so far. Readers hold the lock for one short, synchronous access.
pub(crate) struct ReplicatedState {
    at: RwLock<AppliedState>,
    applied: watch::Sender<u64>,
    /// Version of the rights and of the revoked certificates.
    access: watch::Sender<Version>,
    /// Tables with waiting long polls: at most the existing ones.
    polled: Mutex<BTreeMap<TableId, watch::Sender<TableVersions>>>,
    snapshots: SnapshotDir,
    addresses: Addresses,
    spoken: ProtocolSupport,
    /// Held by publishers: building and installing may run concurrently.
    publishing: Mutex<()>,
    /// True while a snapshot that could not be written waits for space.
    waits: AtomicBool,
    /// End of a leader's snapshot that lacked space, zero if none did; the snapshot is needed while less than that is
    /// applied.
    refused: AtomicU64,
    /// Cancelled once nothing is written any longer.
    ended: CancellationToken,
}

impl ReplicatedState {
    /// Creates the state before the first entry.
    pub(crate) fn new(snapshots: SnapshotDir, spoken: ProtocolSupport) -> Arc<Self> {
        let at =
            AppliedState { state: ClusterState::default(), applied: None, membership: StoredMembership::default() };
        Arc::new(Self {
            at: RwLock::new(at),
            applied: watch::Sender::new(0),
            access: watch::Sender::new(Version::ZERO),
            polled: Mutex::default(),
            snapshots,
            addresses: Addresses::default(),
            spoken,
            publishing: Mutex::default(),
            waits: AtomicBool::default(),
            refused: AtomicU64::default(),
            ended: CancellationToken::new(),
        })
    }

    /// Reads the state. Never hold the guard across an await.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&ClusterState) -> T) -> T {
        let at: RwLockReadGuard<'_, AppliedState> = self.at.read();
        look(&at.state)
    }

    /// Makes the state differ from the one made by the log.
    #[cfg(test)]
    pub(super) fn spoil(&self, spoil: impl FnOnce(&mut ClusterState)) {
        spoil(&mut self.at.write().state);
    }

    /// Returns the end of the newest snapshot and its members. Blocks: the file is read.
    pub(super) fn newest_snapshot(&self) -> Result<Option<SnapshotMeta>, SnapshotError> {
        Ok(self.snapshots.newest()?.map(|(meta, _)| meta))
    }

    /// Returns the protocols of this coordinator.
    pub(crate) fn spoken(&self) -> &ProtocolSupport {
        &self.spoken
    }

    /// Returns the addresses of the members.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the id of the newest entry about the members.
    pub(super) fn membership_log_id(&self) -> Option<LogId> {
        *self.at.read().membership.log_id()
    }

    /// Returns a channel of the index of the last applied entry.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Returns a channel with the version of the rights and of the revoked certificates. Other entries wake no receiver.
    pub(crate) fn access_version(&self) -> watch::Receiver<Version> {
        self.access.subscribe()
    }

    /// Returns a channel with the versions of a table. Entries of the log that do not change them wake no receiver.
    pub(crate) fn table_versions(&self, table: TableId) -> watch::Receiver<TableVersions> {
        let mut polled = self.polled.lock();
        let create = || watch::Sender::new(self.read(|state| TableVersions::of(state, table)));
        polled.entry(table).or_insert_with(create).subscribe()
    }

    fn announce_tables(&self) {
        let mut polled = self.polled.lock();
        polled.retain(|_, versions| versions.receiver_count() > 0);
        if polled.is_empty() {
            return;
        }
        self.read(|state| {
            for (table, versions) in &*polled {
                let now = TableVersions::of(state, *table);
                versions.send_if_modified(|seen| std::mem::replace(seen, now) != now);
            }
        });
    }

    fn announce(&self, index: Option<u64>) {
        self.announce_tables();
        let access = self.read(|state| state.access_version);
        self.access.send_if_modified(|seen| std::mem::replace(seen, access) != access);
        if let Some(index) = index {
            self.applied.send_if_modified(|seen| {
                let newer = index > *seen;
                *seen = (*seen).max(index);
                newer
            });
        }
    }

    fn publish(&self, meta: &SnapshotMeta, body: &[u8]) -> Result<(), SnapshotError> {
        let _one_at_a_time = self.publishing.lock();
        self.snapshots.publish(meta, body)
    }

    /// Writes a peer's snapshot to the disk before openraft receives it and could no longer refuse it. Blocks.
    ///
    /// # Errors
    /// The disk is full. Any other failure occurs again at installation, and ends this coordinator.
    pub(super) fn stage(&self, meta: &SnapshotMeta, body: &[u8]) -> Result<(), SnapshotError> {
        let _one_at_a_time = self.publishing.lock();
        let staged = self.snapshots.stage(meta, body);
        let index = meta.last_log_id.as_ref().map_or(0, |id| id.index);
        let refused = if matches!(&staged, Err(error) if error.is_full()) { index } else { 0 };
        let waited = self.refused.swap(refused, Ordering::Relaxed) > 0;
        match staged {
            Err(error) if error.is_full() => {
                // The leader sends it again about every second.
                if !waited {
                    tracing::warn!(%error, "the disk has no space for the leader's snapshot, which is sent until there is some");
                }
                Err(error)
            }
            Err(error) => {
                tracing::error!(%error, "a snapshot could not be put aside");
                Ok(())
            }
            Ok(()) => {
                if waited {
                    tracing::info!("there is space for snapshots again");
                }
                Ok(())
            }
        }
    }

    /// Discards a staged snapshot that was not installed. Blocks.
    pub(super) fn unstage(&self) {
        let _one_at_a_time = self.publishing.lock();
        self.snapshots.unstage();
    }

    /// Returns true if a snapshot, an own one or the leader's, waits for space on the disk.
    pub(super) fn snapshot_waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed) || *self.applied.borrow() < self.refused.load(Ordering::Relaxed)
    }

    /// Ends waits for space: Raft has ended.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Encodes the applied state. Blocks.
    fn encoded(&self) -> io::Result<(SnapshotMeta, Bytes)> {
        // Encoding works on an image so that it does not delay applying.
        let (state, meta) = {
            let at = self.at.read();
            let meta = SnapshotMeta { last_log_id: at.applied, last_membership: at.membership.clone() };
            (at.state.image(), meta)
        };
        Ok((meta, codec::encode("snapshot", &state)?))
    }

    /// Returns the applied state as a snapshot file for another disk, and the index of its last entry. Blocks.
    pub(crate) fn file(&self) -> io::Result<(u64, Bytes)> {
        let (meta, snapshot) = self.encoded()?;
        Ok((meta.last_log_id.map_or(0, |id| id.index), self.snapshots.file(&meta, &snapshot)?))
    }

    /// Takes and publishes a snapshot of the applied state. Blocks.
    fn take_snapshot(&self) -> io::Result<Result<Snapshot, SnapshotError>> {
        let (meta, snapshot) = self.encoded()?;
        Ok(self.publish(&meta, &snapshot).map(|()| Snapshot { meta, snapshot }))
    }
}

/// openraft's handle on the state.
#[derive(Clone)]
pub(crate) struct Machine {
    replicated: Arc<ReplicatedState>,
    checksums: Checksums,
}

impl Machine {
    /// Creates a state machine over `replicated`, which queues states for checksums.
    pub(crate) fn new(replicated: Arc<ReplicatedState>, checksums: Checksums) -> Self {
        Self { replicated, checksums }
    }
}

/// Returns true if an entry asks for a checksum of the state.
fn asks_for_checksum(entry: &Entry) -> bool {
    match &entry.payload {
        EntryPayload::Normal(batch) => batch.commands.iter().any(|command| matches!(command, Command::CheckState)),
        _ => false,
    }
}

/// Applies an entry of the log to the state.
pub(super) fn take_in(state: &mut ClusterState, entry: &Entry) -> BatchResult {
    let (mut answer, at) = (BatchResult::default(), entry.log_id);
    match &entry.payload {
        EntryPayload::Blank => skip(state, at.index),
        EntryPayload::Normal(batch) if batch.term != at.leader_id.term => {
            skip(state, at.index);
            answer.void = true;
        }
        EntryPayload::Normal(batch) => answer.responses = apply(state, at.index, batch),
        EntryPayload::Membership(membership) => {
            let (members, joint) = members_of(membership);
            members_changed(state, at.index, members, joint);
        }
    }
    answer
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let at = self.replicated.at.read();
        Ok((at.applied, at.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut last = None;
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let log_id = entry.log_id;
            let answer = {
                let mut at = self.replicated.at.write();
                let answer = take_in(&mut at.state, &entry);
                self.replicated.spoken.note(&at.state)?;
                if asks_for_checksum(&entry) {
                    self.checksums.sum_up(log_id.index, at.state.image());
                }
                if let EntryPayload::Membership(membership) = entry.payload {
                    self.replicated.addresses.set(&membership);
                    at.membership = StoredMembership::new(Some(log_id), membership);
                }
                at.applied = Some(log_id);
                answer
            };
            last = Some(log_id.index);
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        self.replicated.announce(last);
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> Result<(), io::Error> {
        let (replicated, meta) = (Arc::clone(&self.replicated), meta.clone());
        let index = meta.last_log_id.as_ref().map(|id| id.index);
        blocking(move || {
            let state = replicated.spoken.decode(&snapshot)?;
            replicated.spoken.note(&state)?;
            replicated.publish(&meta, &snapshot)?;
            replicated.addresses.set(meta.last_membership.membership());
            *replicated.at.write() =
                AppliedState { state, applied: meta.last_log_id, membership: meta.last_membership };
            Ok(())
        })
        .await?;
        self.replicated.announce(index);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let replicated = Arc::clone(&self.replicated);
        let newest = blocking(move || {
            let _stable = replicated.publishing.lock();
            replicated.snapshots.newest().map_err(io::Error::from)
        })
        .await?;
        Ok(newest.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = Bytes;

    /// Waits for space if there is none: an error would end Raft. Any other failure does.
    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        loop {
            let replicated = Arc::clone(&self.replicated);
            let taken = blocking(move || replicated.take_snapshot()).await?;
            let waited = self.replicated.waits.swap(matches!(&taken, Err(error) if error.is_full()), Ordering::Relaxed);
            match taken {
                Ok(snapshot) => {
                    if waited {
                        tracing::info!("there is space for snapshots again");
                    }
                    return Ok(snapshot);
                }
                Err(error) if error.is_full() => {
                    if !waited {
                        tracing::warn!(%error, "the disk has no space for a snapshot; it is tried again until there is some");
                    }
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                () = self.replicated.ended.cancelled() => return Err(io::Error::other("this coordinator has ended")),
                () = tokio::time::sleep(SNAPSHOT_RETRY) => {}
            }
        }
    }
}
