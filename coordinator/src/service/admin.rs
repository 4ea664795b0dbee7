//! Service for operators and scripts. Reads are confirmed by a quorum round, except `Quorum`; writes carry a request
//! id.

use super::call::{Call, Stage};
use super::documents::answers;
use super::findings::status::{cluster_text, disks};
use super::findings::voters::voter;
use super::findings::{describe, events};
use super::operator::quorum;
use super::{Context, answered_before, check_named, only, refuse};
use crate::clock::boot_now;
use crate::leader::session::Session;
use crate::quorum::quorum_changes;
use crate::raft::spare;
use archon_coordinator_core::{ClusterState, Command, Liveness, Remembered, Response as Answer};
use archon_documents::{EventList, Explain, ListEvents, Quorum, ReasonList, ShowQuorum};
use archon_proto::v1;
use archon_proto::v1::admin_server::Admin;
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Number of events or reasons if the request gives none.
const LIST_DEFAULT: u32 = 100;
/// Maximum number of nodes, tables or partitions named in a text or an answer.
pub(super) const NAMED_MAX: usize = 20;

/// The service.
pub(crate) struct Admins {
    context: Context,
}

pub(super) type Result<T, E = ErrorDetail> = std::result::Result<T, E>;

answers! {
    Explain: explained,
    ListEvents: happened,
    ShowQuorum: quorum_seen,
}

impl Admins {
    /// A service over `context`.
    pub(crate) const fn new(context: Context) -> Self {
        Self { context }
    }

    /// Returns the context that all services share.
    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    /// Reads the current state.
    pub(super) async fn view<T>(
        &self,
        call: &Call<'_>,
        look: impl FnOnce(&Arc<Session>, &ClusterState) -> Result<T>,
    ) -> Result<T> {
        let session = self.context.confirmed(call.within).await?;
        session.quorum().replicated().read(|state| {
            check_named(call.cluster(), state)?;
            look(&session, state)
        })
    }

    /// As [`Admins::view`], with the leader's volatile view. Heartbeats need its lock, so it is released before the
    /// read.
    pub(super) async fn view_back<T>(
        &self,
        call: &Call<'_>,
        look: impl FnOnce(&Arc<Session>, &ClusterState, &Remembered) -> Result<T>,
    ) -> Result<T> {
        let session = self.context.confirmed(call.within).await?;
        let remembered = remembered(&session);
        session.quorum().replicated().read(|state| {
            check_named(call.cluster(), state)?;
            look(&session, state, &remembered)
        })
    }

    /// Commits one command, once per request id. `decide` gets the state, and the leader's view of leases, only if the
    /// request is new.
    pub(super) async fn commit(
        &self,
        call: &Call<'_>,
        decide: impl FnOnce(&ClusterState, &Liveness) -> Result<Command>,
    ) -> Result<(Arc<Session>, Answer)> {
        let decide = |state: &ClusterState, liveness: &Liveness| decide(state, liveness).map(Ok);
        let changed: Result<_, std::convert::Infallible> = self.commit_unless(call, decide).await?;
        let Ok(changed) = changed;
        Ok(changed)
    }

    /// As [`Admins::commit`], but `decide` may find nothing to commit, and then returns the answer itself.
    pub(super) async fn commit_unless<T>(
        &self,
        call: &Call<'_>,
        decide: impl FnOnce(&ClusterState, &Liveness) -> Result<Result<Command, T>>,
    ) -> Result<Result<(Arc<Session>, Answer), T>> {
        let session = self.context.confirmed(call.within).await?;
        call.reaches(Stage::Judged);
        let decided = {
            let term = session.term().lock();
            session.quorum().replicated().read(|state| {
                check_named(call.cluster(), state)?;
                match answered_before(state, call.request()) {
                    Some(responses) => Ok(Err(responses)),
                    None => decide(state, term.liveness()).map(Ok),
                }
            })?
        };
        let responses = match decided {
            Ok(Ok(command)) => {
                call.reaches(Stage::Proposed);
                session.propose(Some(call.request()), call.who(), vec![command], call.within).await?
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

    /// Returns the reasons for the states of partitions and nodes.
    pub(super) async fn explained(&self, asked: Explain, call: &Call<'_>) -> Result<ReasonList> {
        self.view_back(call, |session, state, remembered| {
            let disks = disks(session);
            Ok(ReasonList { reasons: describe::reasons(state, remembered, &disks, most(asked.most)) })
        })
        .await
    }

    /// Returns the newest events.
    pub(super) async fn happened(&self, asked: ListEvents, call: &Call<'_>) -> Result<EventList> {
        self.view(call, |_, state| {
            let skip = state.events.len().saturating_sub(most(asked.most));
            let events = state.events.iter().skip(skip).map(|event| events::event(state, event)).collect();
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

/// Returns the leader's volatile view, which is not in the state.
fn remembered(session: &Session) -> Remembered {
    let term = session.term().lock();
    session.quorum().replicated().read(|state| Remembered::new(state, term.liveness(), boot_now()))
}

pub(super) fn unexpected(answer: &Answer) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Internal, format!("the log answered with {answer:?}"))
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
