//! The replicated state in memory, and openraft's state machine over it.

use super::codec;
use super::snapshot::SnapshotDir;
use super::types::{Applied, LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use archon_coordinator_core::{ClusterState, apply, skip};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::io;
use std::sync::Arc;
use tokio::sync::watch;

struct At {
    state: ClusterState,
    applied: Option<LogId>,
    membership: StoredMembership,
}

/// What the log has made so far. Readers hold the lock for one short, synchronous look.
pub(crate) struct Replicated {
    at: RwLock<At>,
    applied: watch::Sender<u64>,
    snapshots: SnapshotDir,
    /// Building and installing may run side by side; whichever publishes holds this.
    publishing: Mutex<()>,
}

impl Replicated {
    /// The state before the first entry.
    pub(crate) fn new(snapshots: SnapshotDir) -> Arc<Self> {
        let at = At { state: ClusterState::default(), applied: None, membership: StoredMembership::default() };
        Arc::new(Self { at: RwLock::new(at), applied: watch::Sender::new(0), snapshots, publishing: Mutex::new(()) })
    }

    /// Looks at the state. Never hold the guard across an await.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&ClusterState) -> T) -> T {
        let at: RwLockReadGuard<'_, At> = self.at.read();
        look(&at.state)
    }

    /// The index of the last applied entry, as a channel that tells when it rises.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    fn announce(&self, index: Option<u64>) {
        if let Some(index) = index {
            self.applied.send_if_modified(|seen| {
                let newer = index > *seen;
                *seen = (*seen).max(index);
                newer
            });
        }
    }

    fn publish(&self, meta: &SnapshotMeta, body: &[u8]) -> io::Result<()> {
        let _one_at_a_time = self.publishing.lock();
        self.snapshots.publish(meta, body).map_err(io::Error::from)
    }
}

/// openraft's handle on the state.
#[derive(Clone)]
pub(crate) struct Machine {
    replicated: Arc<Replicated>,
}

impl Machine {
    /// A state machine over `replicated`.
    pub(crate) fn new(replicated: Arc<Replicated>) -> Self {
        Self { replicated }
    }
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
            let mut answer = Applied::default();
            {
                let mut at = self.replicated.at.write();
                match entry.payload {
                    EntryPayload::Blank => skip(&mut at.state, log_id.index),
                    EntryPayload::Normal(batch) if batch.term != log_id.leader_id.term => {
                        skip(&mut at.state, log_id.index);
                        answer.void = true;
                    }
                    EntryPayload::Normal(batch) => answer.responses = apply(&mut at.state, log_id.index, &batch),
                    EntryPayload::Membership(membership) => {
                        skip(&mut at.state, log_id.index);
                        at.membership = StoredMembership::new(Some(log_id), membership);
                    }
                }
                at.applied = Some(log_id);
            }
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
            let state: ClusterState = codec::decode("snapshot", &snapshot)?;
            replicated.publish(&meta, &snapshot)?;
            *replicated.at.write() = At { state, applied: meta.last_log_id, membership: meta.last_membership };
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

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let replicated = Arc::clone(&self.replicated);
        blocking(move || {
            // An image is taken so that encoding does not hold up what is being applied.
            let (state, meta) = {
                let at = replicated.at.read();
                let meta = SnapshotMeta { last_log_id: at.applied, last_membership: at.membership.clone() };
                (at.state.image(), meta)
            };
            let snapshot = codec::encode("snapshot", &state)?;
            replicated.publish(&meta, &snapshot)?;
            Ok(Snapshot { meta, snapshot })
        })
        .await
    }
}
