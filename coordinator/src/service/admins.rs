//! Reads and commits of the administrative services.

use crate::clock::boot_now;
use crate::leader::session::Session;
use crate::service::call::{Call, Stage};
use crate::service::documents::LONG_REQUESTS_MAX;
use crate::service::{Context, check_named, only};
use archon_coordinator_core::{Attempt, ClusterState, Command, LeaderView, Liveness, Response as Answer};
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum number of nodes, tables or partitions named in a text or an answer.
pub(crate) const NAMED_MAX: usize = 20;

/// The service.
pub(crate) struct Admins {
    pub(crate) context: Context,
    /// Places for long requests.
    pub(super) long_requests: Semaphore,
}

pub(crate) type Result<T, E = ErrorDetail> = std::result::Result<T, E>;

/// Returns the leader's volatile view, which is not in the state.
pub(crate) fn remembered(session: &Session) -> LeaderView {
    let term = session.term().lock();
    session.quorum().replicated().read(|state| LeaderView::new(state, term.liveness(), boot_now()))
}

pub(crate) fn unexpected(answer: &Answer) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Internal, format!("the log answered with {answer:?}"))
}

impl Admins {
    /// A service over `context`.
    pub(crate) fn new(context: Context) -> Self {
        Self { context, long_requests: Semaphore::new(LONG_REQUESTS_MAX) }
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
        look: impl FnOnce(&Arc<Session>, &ClusterState, &LeaderView) -> Result<T>,
    ) -> Result<T> {
        let session = self.context.confirmed(call.within).await?;
        let remembered = remembered(&session);
        session.quorum().replicated().read(|state| {
            check_named(call.cluster(), state)?;
            look(&session, state, &remembered)
        })
    }

    /// Commits one command, once per request id. `decide` gets the state, and the leader's view of leases, only if the
    /// request is new; it decides again if the rows changed before the commit ([`Attempt`]).
    pub(super) async fn commit(
        &self,
        call: &Call<'_>,
        mut decide: impl FnMut(&ClusterState, &Liveness) -> Result<Command>,
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
        mut decide: impl FnMut(&ClusterState, &Liveness) -> Result<Result<Command, T>>,
    ) -> Result<Result<(Arc<Session>, Answer), T>> {
        let deadline = Instant::now() + call.within;
        let session = self.context.confirmed(call.within).await?;
        let mut overtaken = None;
        let responses = loop {
            call.reaches(Stage::Judged);
            let decided = {
                let term = session.term().lock();
                session.quorum().replicated().read(|state| {
                    check_named(call.cluster(), state)?;
                    match Attempt::next(state, call.request()) {
                        Ok(attempt) => Ok(match decide(state, term.liveness())? {
                            Ok(command) => attempt.id_for(&command).map(|id| Ok((id, command))),
                            Err(as_it_is) => Ok(Err(as_it_is)),
                        }),
                        Err(responses) => Ok::<_, ErrorDetail>(Err(responses)),
                    }
                })?
            };
            match decided {
                Ok(Ok((id, command))) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero()
                        && let Some(responses) = overtaken
                    {
                        break responses;
                    }
                    call.reaches(Stage::Proposed);
                    let responses = session.propose(Some(id), call.who(), vec![command], left).await?;
                    if !Attempt::is_overtaken(&responses) {
                        break responses;
                    }
                    overtaken = Some(responses);
                }
                Ok(Err(as_it_is)) => {
                    call.reaches(Stage::Idle);
                    return Ok(Err(as_it_is));
                }
                Err(before) => break before,
            }
        };
        let answer = only(responses);
        call.reaches(if answer.is_ok() { Stage::Done } else { Stage::Judged });
        let answer = answer?;
        Ok(Ok((session, answer)))
    }
}
