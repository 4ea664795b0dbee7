//! How the cluster is, in one answer: who leads, how much is served, and why something waits.

use super::admin::{Admins, Result};
use super::voters::{differing, of_other_histories, unreachable, unsettled, voter, without_changes};
use super::{certificates, describe, upgrade};
use crate::clock::wall_now;
use crate::raft::QuorumView;
use crate::session::Session;
use archon_coordinator_core::{ClusterState, counts};
use archon_proto::v1;
use archon_types::{DiskFull, NodeId};
use std::time::Duration;

/// Reasons in a status.
const STATUS_REASONS_MAX: usize = 20;

impl Admins {
    /// How everything is.
    pub(super) async fn status_of(&self, request: &v1::StatusRequest, within: Duration) -> Result<v1::StatusResponse> {
        self.look_back(request.cluster.as_ref(), within, |session, state, remembered| {
            let view = session.quorum().view();
            let counts = counts(state);
            let mut reasons = unsettled(state);
            reasons.extend(without_changes(view.id, &view.voters));
            reasons.extend(differing(session.quorum()));
            reasons.extend(of_other_histories(session, state));
            reasons.extend(unreachable(&view.voters));
            let most = STATUS_REASONS_MAX.saturating_sub(reasons.len());
            reasons.extend(describe::reasons(state, remembered, &full_disks(session), most));
            // What is not served comes first.
            reasons.extend(upgrade::reason(state, &view));
            reasons.extend(self.certificates(session, state, &view));
            reasons.truncate(STATUS_REASONS_MAX);
            Ok(v1::StatusResponse {
                cluster: Some(state.cluster.into()),
                leader: view.leader,
                term: view.term,
                coordinators: view.voters.into_iter().map(voter).collect(),
                table_version: state.table_version().get(),
                nodes_alive: counts.nodes_alive,
                nodes_failed: counts.nodes_failed,
                nodes_unreached: u32::try_from(remembered.unreached().count()).unwrap_or(u32::MAX),
                partitions: counts.partitions,
                partitions_online: counts.partitions_online,
                moves_running: counts.migrations_running,
                reshapings_running: counts.reshapings_running,
                nodes_min: state.settings.nodes_min,
                reasons,
                partitions_under_replicated: counts.partitions_under_replicated,
                transport: self.context().transport.kind().as_str().to_owned(),
                copies_condemned: u32::try_from(state.condemned.len()).unwrap_or(u32::MAX),
            })
        })
        .await
    }

    /// Why somebody should look at certificates.
    pub(super) fn certificates(&self, session: &Session, state: &ClusterState, view: &QuorumView) -> Vec<v1::Reason> {
        let own = self.context().transport.certificate();
        certificates::reasons(state, &session.loads().lock(), (view.id, own), &view.voters, wall_now())
    }
}

/// The nodes that refuse writes because their disks are full; heartbeats need the lock, so it is let go at once.
pub(super) fn full_disks(session: &Session) -> Vec<(NodeId, DiskFull)> {
    session.loads().lock().full_disks().collect()
}
