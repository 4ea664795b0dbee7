//! Status of the cluster in one answer: the leader, the served partitions, and the reasons of waits.

use super::certificates;
use super::voters::voter;
use crate::clock::wall_now;
use crate::leader::session::Session;
use crate::raft::QuorumView;
use crate::service::admins::{Admins, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::findings::subjects::cluster_text;
use archon_coordinator_core::{ClusterState, LeaderView, counts};
use archon_documents::{CheckCluster, ShowStatus, Status};
use archon_types::{Finding, Severity};
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
        let status = |session: &Arc<Session>, state: &ClusterState, remembered: &LeaderView| {
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
        Ok(Status { reasons: found.into_iter().map(Into::into).collect(), ..status })
    }

    /// Returns findings about certificates.
    pub(in crate::service) fn certificates(
        &self,
        session: &Session,
        state: &ClusterState,
        view: &QuorumView,
    ) -> Vec<Finding> {
        let own = self.context().transport.certificate();
        certificates::findings(state, &session.loads().lock(), (view.id, own), &view.voters, wall_now())
    }
}
