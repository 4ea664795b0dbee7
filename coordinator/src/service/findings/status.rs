//! Status of the cluster in one answer: the leader, the served partitions, and the reasons of waits.

use super::certificates;
use super::voters::voter;
use crate::clock::wall_now;
use crate::leader::session::Session;
use crate::raft::QuorumView;
use crate::service::admin::{Admins, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use archon_coordinator_core::{ClusterState, Remembered, counts};
use archon_documents::{CheckCluster, Reason, ShowStatus, Status};
use archon_types::{DiskFull, LogPin, NodeId, Severity};
use std::sync::Arc;

/// Maximum number of reasons in a status.
const STATUS_REASONS_MAX: usize = 20;

answers! {
    ShowStatus: status_of,
}

impl Admins {
    /// Returns the status, with reasons of waits and the warnings of `archon check`.
    pub(in crate::service) async fn status_of(&self, _: ShowStatus, call: &Call<'_>) -> Result<Status> {
        let look = (CheckCluster::default(), STATUS_REASONS_MAX);
        let status = |session: &Arc<Session>, state: &ClusterState, remembered: &Remembered| {
            let view = session.quorum().view();
            let counts = counts(state);
            Status {
                cluster_id: cluster_text(state),
                leader_id: view.leader,
                term: view.term,
                coordinators: view.voters.into_iter().map(voter).collect(),
                table_version: state.table_version().get(),
                nodes_alive: counts.nodes_alive,
                nodes_failed: counts.nodes_failed,
                nodes_unreached: u32::try_from(remembered.unreached().count()).unwrap_or(u32::MAX),
                partitions_total: counts.partitions,
                partitions_online: counts.partitions_online,
                moves_running: counts.migrations_running,
                reshapings_running: counts.reshapings_running,
                nodes_min: state.settings.nodes_min,
                reasons: Vec::new(),
                partitions_under_replicated: counts.partitions_under_replicated,
                transport: self.context().transport.kind().into(),
                copies_condemned: u32::try_from(state.condemned.len()).unwrap_or(u32::MAX),
            }
        };
        let (status, mut found) = self.found(call, look, status).await?;
        // Intended states hold nothing up.
        found.retain(|found| found.waits || found.severity != Severity::Notice);
        found.sort_by_key(|found| !found.waits);
        found.truncate(STATUS_REASONS_MAX);
        Ok(Status { reasons: found.into_iter().map(|found| found.reason).collect(), ..status })
    }

    /// Returns reasons to check certificates.
    pub(in crate::service) fn certificates(
        &self,
        session: &Session,
        state: &ClusterState,
        view: &QuorumView,
    ) -> Vec<Reason> {
        let own = self.context().transport.certificate();
        certificates::reasons(state, &session.loads().lock(), (view.id, own), &view.voters, wall_now())
    }
}

/// Returns the cluster's UUID; empty before bootstrap.
pub(in crate::service) fn cluster_text(state: &ClusterState) -> String {
    if state.is_bootstrapped() { state.cluster.to_string() } else { String::new() }
}

/// Disk reports of the nodes.
#[derive(Debug, Default)]
pub(in crate::service) struct Disks {
    /// Nodes that refuse writes because their disks are full.
    pub(in crate::service) full: Vec<(NodeId, DiskFull)>,
    /// Nodes on which a replica retains much of the log.
    pub(in crate::service) log_pins: Vec<(NodeId, LogPin)>,
}

/// Copies the disk reports of the nodes; heartbeats need the lock, so it is released at once.
pub(in crate::service) fn disks(session: &Session) -> Disks {
    let loads = session.loads().lock();
    Disks { full: loads.full_disks().collect(), log_pins: loads.log_pins().collect() }
}
