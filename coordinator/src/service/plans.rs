//! Rebalance plans: computed, applied, observed and cancelled.

use super::admin::{Admins, Result, unexpected};
use super::call::Call;
use super::{check_named, rebalance};
use archon_coordinator_core::{ClusterState, Command, Goal, Liveness, MigrationId, Response as Answer, plan};
use archon_documents::{CancelRebalance, Cancelled, RebalancePage, ShowRebalance};
use archon_proto::convert::admin::ApplyPlan;
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind};
use std::time::Duration;

/// Maximum number of moves in one answer of `RebalanceStatus`.
const MOVES_MAX: u32 = 1_024;

impl Admins {
    /// Computes a plan, or joins a computation in progress.
    pub(super) async fn plan(
        &self,
        request: &v1::PlanRebalanceRequest,
        within: Duration,
    ) -> Result<v1::PlanRebalanceResponse> {
        let session = self.context().confirmed(within).await?;
        let replicated = session.quorum().replicated();
        replicated.read(|state| check_named(request.cluster.as_ref(), state))?;
        let spared = || session.term().lock().liveness().spared();
        let versions = |state: &ClusterState| (state.table_version(), state.moves_version);
        // Planning for a large cluster takes a while, so it works on an image, concurrently.
        let begin = || {
            let spared = spared();
            let (versions, image) = replicated.read(|state| (versions(state), state.image()));
            let goal = Goal { spared: spared.clone(), ..Goal::default() };
            let work = move || {
                let state = image.restored();
                rebalance::Planned::new(&state, &plan(&state, goal))
            };
            ((versions, spared), work)
        };
        let now = || {
            let spared = spared();
            (replicated.read(versions), spared)
        };
        let planned = session.plans().get(within, now, begin).await?;
        Ok(v1::PlanRebalanceResponse { plan: Some(planned.to_wire(session.loads())) })
    }

    /// Starts to apply a plan.
    pub(super) async fn apply(&self, request: v1::ApplyPlanRequest, call: &Call<'_>) -> Result<v1::ApplyPlanResponse> {
        let cluster = request.cluster.clone();
        let ApplyPlan { request, plan } = ApplyPlan::try_from(request)?;
        let decide = |state: &ClusterState, _: &Liveness| Ok(rebalance::plan_to_command(state, plan));
        match self.change(cluster.as_ref(), request, call, decide).await?.1 {
            Answer::PlanStarted { count, .. } => Ok(v1::ApplyPlanResponse { moves: count }),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the progress of the present or last plan.
    pub(super) async fn rebalance(&self, asked: ShowRebalance, call: &Call<'_>) -> Result<RebalancePage> {
        let most = usize::try_from(asked.most.min(MOVES_MAX)).unwrap_or(usize::MAX);
        let session = self.context().confirmed(call.within).await?;
        let progress = session.quorum().replicated().read(|state| {
            check_named(call.cluster(), state)?;
            Ok::<_, ErrorDetail>(rebalance::Progress::new(state, most, MigrationId::new(asked.after)))
        })?;
        Ok(progress.page(session.loads()))
    }

    /// Cancels the rest of a plan.
    pub(super) async fn cancel(&self, _: CancelRebalance, call: &Call<'_>) -> Result<Cancelled> {
        let decide = |state: &ClusterState, _: &Liveness| match state.migrations.active_count() {
            0 => Err(ErrorDetail::new(ErrorKind::NothingRunning, "no rebalance is running")),
            _ => Ok(Command::CancelPlan),
        };
        match self.commit(call, decide).await?.1 {
            Answer::PlanCancelled { undone, too_late } => {
                Ok(Cancelled { moves_cancelled: undone, moves_too_late: too_late })
            }
            other => Err(unexpected(&other)),
        }
    }
}
