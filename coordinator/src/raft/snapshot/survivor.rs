//! Recovery of a quorum's state from a stopped coordinator's directory or a snapshot file, into a directory in which a
//! new generation begins.

use super::{SnapshotDir, read_file};
use crate::error::CoordinatorError;
use crate::raft::log::codec;
use crate::raft::log::store::{COMMITTED, FACTS, PURGED, VOTE};
use crate::raft::machine::take_in;
use crate::raft::types::{LogId, Membership, SnapshotMeta, StoredMembership, Vote, Voter};
use crate::raft::{ProtocolSupport, SNAPSHOTS_DIR, Storage, StoreError, log_disk};
use archon_coordinator_core::ClusterState;
use archon_wal::{Wal, WalBatch, WalConfig};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Maximum time for closing the log.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// Returns the state in a stopped coordinator's directory, of the quorum with this key: its newest snapshot, and every
/// entry of its log after that, committed or not. Blocks.
pub(crate) fn read_directory(data_dir: &Path, quorum: Uuid) -> Result<ClusterState, CoordinatorError> {
    let snapshots = SnapshotDir::open(&data_dir.join(SNAPSHOTS_DIR), quorum)?;
    let newest = snapshots.newest()?;
    let spoken = ProtocolSupport::default();
    let storage = Storage::open_log(data_dir, snapshots, spoken.clone())?;
    let (mut state, covered) = match newest {
        Some((meta, body)) => (spoken.decode(&body).map_err(StoreError::from)?, meta.last_log_id.map(|id| id.index)),
        None => (ClusterState::new(), None),
    };
    for entry in storage.log.entries() {
        if covered.is_none_or(|covered| entry.log_id.index > covered) {
            take_in(&mut state, &entry);
            spoken.note(&state).map_err(StoreError::from)?;
        }
    }
    storage.log.wal().clone().close(CLOSE_DEADLINE).map_err(StoreError::from)?;
    Ok(state)
}

/// Returns the state in a snapshot file of any quorum. Blocks.
pub(crate) fn read_snapshot(path: &Path) -> Result<ClusterState, CoordinatorError> {
    let (_, body) = read_file(path)?;
    Ok(ProtocolSupport::default().decode(&body).map_err(StoreError::from)?)
}

/// Founder of a new generation.
pub(crate) struct Founder {
    pub(crate) id: u64,
    pub(crate) storage: Uuid,
    pub(crate) address: String,
    /// Key of the quorum that begins with it.
    pub(crate) quorum: Uuid,
}

/// Writes vote, log and snapshot of a directory in which a generation begins with `state`, durably. Blocks.
pub(crate) fn write_directory(
    data_dir: &Path,
    state: &ClusterState,
    founder: &Founder,
) -> Result<(), CoordinatorError> {
    // Terms start at the same number as entries, so that a term of an earlier generation never counts as newer.
    let term = state.applied;
    let at = LogId { leader_id: term.into(), index: state.applied };
    let voter = Voter { address: founder.address.clone(), storage: founder.storage };
    let members = Membership::new(vec![[founder.id].into()], BTreeMap::from([(founder.id, voter)]));
    let members = members.map_err(|error| CoordinatorError::Raft { what: error.to_string() })?;
    let meta = SnapshotMeta { last_log_id: Some(at), last_membership: StoredMembership::new(Some(at), members) };
    let body = codec::encode("snapshot", state).map_err(StoreError::from)?;
    SnapshotDir::open(&data_dir.join(SNAPSHOTS_DIR), founder.quorum)?.publish(&meta, &body)?;
    let facts = || -> io::Result<WalBatch> {
        let mut batch = WalBatch::new();
        batch.meta(FACTS, VOTE, codec::encode("vote", &Vote::new(term, founder.id))?);
        batch.meta(FACTS, PURGED, codec::encode("purged position", &at)?);
        batch.meta(FACTS, COMMITTED, codec::encode("committed position", &Some(at))?).urgent();
        Ok(batch)
    };
    let (disk, _) = log_disk(data_dir)?;
    let (wal, _) = Wal::open_on(Arc::new(disk), WalConfig::default()).map_err(StoreError::from)?;
    wal.append_wait(facts().map_err(StoreError::from)?).map_err(StoreError::from)?;
    wal.close(CLOSE_DEADLINE).map_err(StoreError::from)?;
    Ok(())
}
