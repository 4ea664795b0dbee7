//! Service for operators and scripts. Reads are confirmed by a quorum round, except `Quorum`; writes carry a request
//! id.

use super::call::Call;
use super::documents::answers;
use super::findings::voters::voter;
use super::operator::quorum;
use super::{check_named, refuse};
use crate::quorum::quorum_changes;
use crate::raft::spare;
use crate::service::admins::{Admins, Result};
use crate::service::findings::disks::disks;
use crate::service::findings::subjects::cluster_text;
use archon_coordinator_core::{recorded_event, waits};
use archon_documents::{EventList, Explain, ListEvents, Quorum, ReasonList, ShowQuorum};
use archon_proto::v1;
use archon_proto::v1::admin_server::Admin;
use tonic::{Request, Response, Status};

/// Number of events or reasons if the request gives none.
const LIST_DEFAULT: u32 = 100;

answers! {
    Explain: explained,
    ListEvents: happened,
    ShowQuorum: quorum_seen,
}

impl Admins {
    /// Returns the reasons for the states of partitions and nodes.
    pub(super) async fn explained(&self, asked: Explain, call: &Call<'_>) -> Result<ReasonList> {
        self.view_back(call, |session, state, remembered| {
            let found = waits(state, remembered, &disks(session), most(asked.most));
            Ok(ReasonList { reasons: found.into_iter().map(Into::into).collect() })
        })
        .await
    }

    /// Returns the newest events.
    pub(super) async fn happened(&self, asked: ListEvents, call: &Call<'_>) -> Result<EventList> {
        self.view(call, |_, state| {
            let skip = state.events.len().saturating_sub(most(asked.most));
            let events = state.events.iter().skip(skip).map(|event| recorded_event(state, event).into()).collect();
            Ok(EventList { events })
        })
        .await
    }

    /// Returns the quorum in the view of this coordinator.
    pub(super) async fn quorum_seen(&self, _: ShowQuorum, call: &Call<'_>) -> Result<Quorum> {
        let raft = self.context.quorum()?;
        let view = raft.view();
        let session = self.context.leading.session();
        let step = session.as_ref().and_then(|session| quorum_changes::step(session));
        let refused = session.as_ref().map(|session| session.other_histories.told()).unwrap_or_default();
        let refused = refused.into_iter().collect();
        let standby = raft.standby();
        let leads = session.is_some() || standby.is_some();
        let spare = leads.then(|| spare(&view.voters)).flatten().and_then(|spare| u32::try_from(spare).ok());
        let leader_address = view.leader.and_then(|leader| raft.addresses().remove(&leader));
        raft.replicated().read(|state| {
            if state.is_bootstrapped() {
                check_named(call.cluster(), state)?;
            }
            let generation_key = state.generation_key(state.generation).get();
            Ok(Quorum {
                id: raft.id(),
                role: view.role.into(),
                leader_id: view.leader,
                leader_address,
                term: view.term,
                last_log_index: view.last_log_index,
                applied_index: view.applied_index,
                coordinators: view.voters.into_iter().map(voter).collect(),
                spare_voters: spare,
                pending: quorum::pending(state, step.as_ref()),
                retired_ids: state.coordinators.retired.keys().copied().collect(),
                cluster_id: cluster_text(state),
                generation: state.generation,
                generation_key: (!generation_key.is_nil()).then(|| generation_key.to_string()),
                recovery: quorum::recovery(state, &refused, standby.clone()),
                waits: standby.map(|standby| standby.text),
            })
        })
    }
}

fn most(asked: u32) -> usize {
    usize::try_from(if asked == 0 { LIST_DEFAULT } else { asked }).unwrap_or(usize::MAX)
}

/// Answers a call that changes the cluster, and reports its outcome to the call.
macro_rules! change {
    ($self:ident, $method:literal, $request:ident, $change:ident) => {{
        let call = Call::new(&$self.context.audit, concat!("/archon.v1.Admin/", $method), &$request);
        let answer = $self.$change($request.into_inner(), &call).await;
        call.end(answer.as_ref().err());
        answer.map(Response::new).map_err(refuse)
    }};
}

#[tonic::async_trait]
impl Admin for Admins {
    async fn join_quorum(
        &self,
        request: Request<v1::JoinQuorumRequest>,
    ) -> Result<Response<v1::JoinQuorumResponse>, Status> {
        change!(self, "JoinQuorum", request, join)
    }

    type SnapshotQuorumStream = quorum::Pages;

    async fn snapshot_quorum(
        &self,
        request: Request<v1::SnapshotQuorumRequest>,
    ) -> Result<Response<Self::SnapshotQuorumStream>, Status> {
        change!(self, "SnapshotQuorum", request, saved)
    }
}
