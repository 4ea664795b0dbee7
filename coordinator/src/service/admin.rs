//! What people and scripts ask. Reads are confirmed by a quorum round, except `Quorum`; writes carry a request id.

use super::admin_tables::table_info;
use super::call::{Call, Stage};
use super::operate::{node_summary, shown_nodes};
use super::status::disks;
use super::voters::voter;
use super::{Context, answered_before, budget, check_named, only, refuse};
use super::{describe, events, quorum};
use crate::clock::boot_now;
use crate::quorum_changes;
use crate::raft::spare;
use crate::session::Session;
use archon_coordinator_core::{ClusterState, Command, Liveness, Remembered, Response as Answer};
use archon_proto::convert::admin::LIST_MAX;
use archon_proto::convert::ids::key_bytes;
use archon_proto::v1;
use archon_proto::v1::admin_server::Admin;
use archon_types::{ErrorDetail, ErrorKind, RequestId};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// Events or reasons when the request leaves the number open.
const LIST_DEFAULT: u32 = 100;
/// Most nodes, tables or partitions that a text or an answer names.
pub(super) const NAMED_MAX: usize = 20;

/// The service.
pub(crate) struct Admins {
    context: Context,
}

pub(super) type Result<T, E = ErrorDetail> = std::result::Result<T, E>;

impl Admins {
    /// A service over `context`.
    pub(crate) const fn new(context: Context) -> Self {
        Self { context }
    }

    /// What every service shares.
    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    /// Looks at the state as of now, for a request that may name the cluster.
    pub(super) async fn look<T>(
        &self,
        cluster: Option<&v1::ClusterRef>,
        within: Duration,
        look: impl FnOnce(&Arc<Session>, &ClusterState) -> Result<T>,
    ) -> Result<T> {
        let session = self.context.confirmed(within).await?;
        session.quorum().replicated().read(|state| {
            check_named(cluster, state)?;
            look(&session, state)
        })
    }

    /// As [`Admins::look`], with what the leader remembers. Heartbeats need that memory: it is let go before the look.
    pub(super) async fn look_back<T>(
        &self,
        cluster: Option<&v1::ClusterRef>,
        within: Duration,
        look: impl FnOnce(&Arc<Session>, &ClusterState, &Remembered) -> Result<T>,
    ) -> Result<T> {
        let session = self.context.confirmed(within).await?;
        let remembered = remembered(&session);
        session.quorum().replicated().read(|state| {
            check_named(cluster, state)?;
            look(&session, state, &remembered)
        })
    }

    /// Commits one command, once per request id. `decide` sees the state, and what the leader remembers of leases, only
    /// if the request is new.
    pub(super) async fn change(
        &self,
        cluster: Option<&v1::ClusterRef>,
        request: RequestId,
        call: &Call<'_>,
        decide: impl FnOnce(&ClusterState, &Liveness) -> Result<Command>,
    ) -> Result<(Arc<Session>, Answer)> {
        let decide = |state: &ClusterState, liveness: &Liveness| decide(state, liveness).map(Ok);
        let changed: Result<_, std::convert::Infallible> = self.change_unless(cluster, request, call, decide).await?;
        let Ok(changed) = changed;
        Ok(changed)
    }

    /// As [`Admins::change`], but `decide` may find that there is nothing to commit, and gives the answer itself then.
    pub(super) async fn change_unless<T>(
        &self,
        cluster: Option<&v1::ClusterRef>,
        request: RequestId,
        call: &Call<'_>,
        decide: impl FnOnce(&ClusterState, &Liveness) -> Result<Result<Command, T>>,
    ) -> Result<Result<(Arc<Session>, Answer), T>> {
        let session = self.context.confirmed(call.within).await?;
        call.reaches(Stage::Judged);
        let decided = {
            let term = session.term().lock();
            session.quorum().replicated().read(|state| {
                check_named(cluster, state)?;
                match answered_before(state, request) {
                    Some(responses) => Ok(Err(responses)),
                    None => decide(state, term.liveness()).map(Ok),
                }
            })?
        };
        let responses = match decided {
            Ok(Ok(command)) => {
                call.reaches(Stage::Proposed);
                session.propose(Some(request), call.who(), vec![command], call.within).await?
            }
            Ok(Err(as_it_is)) => {
                call.reaches(Stage::Idle);
                return Ok(Err(as_it_is));
            }
            Err(before) => before,
        };
        let answer = only(responses);
        call.reaches(if answer.is_ok() { Stage::Done } else { Stage::Judged });
        let answer = answer?;
        Ok(Ok((session, answer)))
    }

    async fn nodes(&self, request: &v1::ListNodesRequest, within: Duration) -> Result<v1::ListNodesResponse> {
        self.look_back(request.cluster.as_ref(), within, |session, state, remembered| {
            let nodes = shown_nodes(state).map(|row| node_summary(session, state, remembered, row));
            Ok(v1::ListNodesResponse { nodes: nodes.collect(), table_version: state.table_version().get() })
        })
        .await
    }
}

/// What the leader remembers and the state does not show.
fn remembered(session: &Session) -> Remembered {
    let term = session.term().lock();
    session.quorum().replicated().read(|state| Remembered::new(state, term.liveness(), boot_now()))
}

pub(super) fn unexpected(answer: &Answer) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Internal, format!("the log answered with {answer:?}"))
}

fn most(asked: u32) -> Result<usize> {
    if asked > LIST_MAX {
        let message = format!("most is {asked}; the limit is {LIST_MAX}");
        return Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
    }
    let asked = if asked == 0 { LIST_DEFAULT } else { asked };
    Ok(usize::try_from(asked).unwrap_or(usize::MAX))
}

/// Answers a call that changes the cluster, and has it told what came of it.
macro_rules! change {
    ($self:ident, $method:literal, $request:ident, $change:ident) => {{
        let call = Call::new(&$self.context.audit, concat!("/archon.v1.Admin/", $method), &$request);
        let answer = $self.$change($request.into_inner(), &call).await;
        call.end(answer.as_ref().err());
        answer.map(Response::new).map_err(refuse)
    }};
}

macro_rules! answer {
    ($answer:expr) => {
        $answer.await.map(Response::new).map_err(refuse)
    };
}

#[tonic::async_trait]
impl Admin for Admins {
    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.status_of(request.get_ref(), within))
    }

    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.nodes(request.get_ref(), within))
    }

    async fn set_node(&self, request: Request<v1::SetNodeRequest>) -> Result<Response<v1::SetNodeResponse>, Status> {
        change!(self, "SetNode", request, set)
    }

    async fn alter_node(
        &self,
        request: Request<v1::AlterNodeRequest>,
    ) -> Result<Response<v1::AlterNodeResponse>, Status> {
        change!(self, "AlterNode", request, alter_node_of)
    }

    async fn check_node(
        &self,
        request: Request<v1::CheckNodeRequest>,
    ) -> Result<Response<v1::CheckNodeResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.checked_node(request.get_ref(), within))
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        change!(self, "RemoveNode", request, remove)
    }

    async fn lose_node(&self, request: Request<v1::LoseNodeRequest>) -> Result<Response<v1::LoseNodeResponse>, Status> {
        change!(self, "LoseNode", request, lose)
    }

    async fn describe_partition(
        &self,
        request: Request<v1::DescribePartitionRequest>,
    ) -> Result<Response<v1::DescribePartitionResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.described(request.into_inner(), within))
    }

    async fn order(&self, request: Request<v1::OrderRequest>) -> Result<Response<v1::OrderResponse>, Status> {
        change!(self, "Order", request, ordered)
    }

    async fn check(&self, request: Request<v1::CheckRequest>) -> Result<Response<v1::CheckResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.looked_over(request.into_inner(), within))
    }

    async fn force_leader(
        &self,
        request: Request<v1::ForceLeaderRequest>,
    ) -> Result<Response<v1::ForceLeaderResponse>, Status> {
        change!(self, "ForceLeader", request, force)
    }

    async fn split_partition(
        &self,
        request: Request<v1::SplitPartitionRequest>,
    ) -> Result<Response<v1::SplitPartitionResponse>, Status> {
        change!(self, "SplitPartition", request, split)
    }

    async fn merge_partition(
        &self,
        request: Request<v1::MergePartitionRequest>,
    ) -> Result<Response<v1::MergePartitionResponse>, Status> {
        change!(self, "MergePartition", request, merge)
    }

    async fn list_tables(
        &self,
        request: Request<v1::ListTablesRequest>,
    ) -> Result<Response<v1::ListTablesResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.look(request.get_ref().cluster.as_ref(), within, |_, state| {
            let tables = state.tables.values().map(|table| table_info(state, table)).collect();
            Ok(v1::ListTablesResponse { tables })
        }))
    }

    async fn create_table(
        &self,
        request: Request<v1::CreateTableRequest>,
    ) -> Result<Response<v1::CreateTableResponse>, Status> {
        change!(self, "CreateTable", request, create)
    }

    async fn alter_table(
        &self,
        request: Request<v1::AlterTableRequest>,
    ) -> Result<Response<v1::AlterTableResponse>, Status> {
        change!(self, "AlterTable", request, alter)
    }

    async fn check_table(
        &self,
        request: Request<v1::CheckTableRequest>,
    ) -> Result<Response<v1::CheckTableResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.checked_table(request.get_ref(), within))
    }

    async fn drop_table(
        &self,
        request: Request<v1::DropTableRequest>,
    ) -> Result<Response<v1::DropTableResponse>, Status> {
        change!(self, "DropTable", request, drop_table_of)
    }

    async fn plan_rebalance(
        &self,
        request: Request<v1::PlanRebalanceRequest>,
    ) -> Result<Response<v1::PlanRebalanceResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.plan(request.get_ref(), within))
    }

    async fn apply_plan(
        &self,
        request: Request<v1::ApplyPlanRequest>,
    ) -> Result<Response<v1::ApplyPlanResponse>, Status> {
        change!(self, "ApplyPlan", request, apply)
    }

    async fn rebalance_status(
        &self,
        request: Request<v1::RebalanceStatusRequest>,
    ) -> Result<Response<v1::RebalanceStatusResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.rebalance(request.get_ref(), within))
    }

    async fn cancel_rebalance(
        &self,
        request: Request<v1::CancelRebalanceRequest>,
    ) -> Result<Response<v1::CancelRebalanceResponse>, Status> {
        change!(self, "CancelRebalance", request, cancel)
    }

    async fn list_settings(
        &self,
        request: Request<v1::ListSettingsRequest>,
    ) -> Result<Response<v1::ListSettingsResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.settings(request.get_ref(), within))
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureRequest>,
    ) -> Result<Response<v1::ConfigureResponse>, Status> {
        change!(self, "Configure", request, configured)
    }

    async fn list_access(
        &self,
        request: Request<v1::ListAccessRequest>,
    ) -> Result<Response<v1::ListAccessResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.access(request.into_inner(), within))
    }

    async fn set_access(
        &self,
        request: Request<v1::SetAccessRequest>,
    ) -> Result<Response<v1::SetAccessResponse>, Status> {
        change!(self, "SetAccess", request, set_access_of)
    }

    async fn withdraw(&self, request: Request<v1::WithdrawRequest>) -> Result<Response<v1::WithdrawResponse>, Status> {
        change!(self, "Withdraw", request, withdrawn)
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        let within = budget(request.metadata());
        let request = request.into_inner();
        let most = most(request.most).map_err(refuse)?;
        answer!(self.look_back(request.cluster.as_ref(), within, |session, state, remembered| {
            let disks = disks(session);
            Ok(v1::ExplainResponse { reasons: describe::reasons(state, remembered, &disks, most) })
        }))
    }

    async fn quorum(&self, request: Request<v1::QuorumRequest>) -> Result<Response<v1::QuorumResponse>, Status> {
        let raft = self.context.quorum().map_err(refuse)?;
        let request = request.into_inner();
        let view = raft.view();
        let cluster = raft.replicated().read(|state| {
            let known = state.is_bootstrapped().then_some(state.cluster);
            if known.is_some() { check_named(request.cluster.as_ref(), state).map(|()| known) } else { Ok(known) }
        });
        let session = self.context.leading.session();
        let step = session.as_ref().and_then(|session| quorum_changes::step(session));
        let refused = session.as_ref().map(|session| session.other_histories.told()).unwrap_or_default();
        let refused = refused.into_iter().collect();
        let (pending, retired, recovery, (generation, generation_key)) = raft.replicated().read(|state| {
            let retired = state.coordinators.retired.keys().copied().collect();
            (
                quorum::pending(state, step.as_ref()),
                retired,
                quorum::recovery(state, &refused, raft.standby()),
                (state.generation, state.generation_key(state.generation)),
            )
        });
        let leads = session.is_some() || raft.standby().is_some();
        let spare = leads.then(|| spare(&view.voters)).flatten().and_then(|spare| u32::try_from(spare).ok());
        let leader_address = view.leader.and_then(|leader| raft.addresses().remove(&leader));
        Ok(Response::new(v1::QuorumResponse {
            id: raft.id(),
            role: view.role.as_str().to_owned(),
            leader: view.leader,
            leader_address,
            term: view.term,
            last_log_index: view.last_log_index,
            applied_index: view.applied_index,
            voters: view.voters.into_iter().map(voter).collect(),
            cluster: cluster.map_err(refuse)?.map(Into::into),
            pending,
            retired,
            recovery,
            generation,
            generation_key: key_bytes(generation_key),
            spare,
        }))
    }

    async fn change_quorum(
        &self,
        request: Request<v1::ChangeQuorumRequest>,
    ) -> Result<Response<v1::ChangeQuorumResponse>, Status> {
        change!(self, "ChangeQuorum", request, changed_quorum)
    }

    async fn join_quorum(
        &self,
        request: Request<v1::JoinQuorumRequest>,
    ) -> Result<Response<v1::JoinQuorumResponse>, Status> {
        change!(self, "JoinQuorum", request, join)
    }

    async fn transfer_lead(
        &self,
        request: Request<v1::TransferLeadRequest>,
    ) -> Result<Response<v1::TransferLeadResponse>, Status> {
        change!(self, "TransferLead", request, transferred)
    }

    async fn show_upgrade(
        &self,
        request: Request<v1::ShowUpgradeRequest>,
    ) -> Result<Response<v1::ShowUpgradeResponse>, Status> {
        let within = budget(request.metadata());
        answer!(self.shown_upgrade(request.get_ref(), within))
    }

    async fn change_upgrade(
        &self,
        request: Request<v1::ChangeUpgradeRequest>,
    ) -> Result<Response<v1::ChangeUpgradeResponse>, Status> {
        change!(self, "ChangeUpgrade", request, changed_upgrade)
    }

    type SnapshotQuorumStream = quorum::Pages;

    async fn snapshot_quorum(
        &self,
        request: Request<v1::SnapshotQuorumRequest>,
    ) -> Result<Response<Self::SnapshotQuorumStream>, Status> {
        change!(self, "SnapshotQuorum", request, saved)
    }

    async fn events(&self, request: Request<v1::EventsRequest>) -> Result<Response<v1::EventsResponse>, Status> {
        let within = budget(request.metadata());
        let request = request.into_inner();
        let most = most(request.most).map_err(refuse)?;
        answer!(self.look(request.cluster.as_ref(), within, |_, state| {
            let skip = state.events.len().saturating_sub(most);
            let events = state.events.iter().skip(skip).map(|event| events::event(state, event)).collect();
            Ok(v1::EventsResponse { events })
        }))
    }
}
