//! Rebalance plans: computed, applied, observed and cancelled.

use super::rebalance;
use crate::service::admins::{Admins, Result, unexpected};
use crate::service::call::Call;
use crate::service::check_named;
use crate::service::documents::answers;
use archon_coordinator_core::{ClusterState, Command, Goal, Liveness, MigrationId, Response as Answer, plan};
use archon_documents::{
    ApplyPlan, CancelRebalance, PlanApplied, PlanRebalance, RebalanceCancellation, RebalancePage, ShowRebalance,
};
use archon_types::limits::PLAN_MOVES_MAX;
use archon_types::plan::Plan;
use archon_types::{ErrorDetail, ErrorKind};

/// Maximum number of moves in one answer of `RebalanceStatus`.
const MOVES_MAX: u32 = 1_024;

answers! {
    PlanRebalance: plan,
    ApplyPlan: apply,
    ShowRebalance: rebalance,
    CancelRebalance: cancel,
}

impl Admins {
    /// Computes a plan, or joins a computation in progress.
    pub(in crate::service) async fn plan(&self, _: PlanRebalance, call: &Call<'_>) -> Result<Plan> {
        let session = self.context().confirmed(call.within).await?;
        let replicated = session.quorum().replicated();
        replicated.read(|state| check_named(call.cluster(), state))?;
        let spared = || session.term().lock().liveness().spared();
        let versions = |state: &ClusterState| (state.table_version(), state.moves_version);
        // Planning for a large cluster takes a while, so it works on an image, concurrently.
        let begin = || {
            let spared = spared();
            let (versions, image) = replicated.read(|state| (versions(state), state.image()));
            let moves_max = u32::try_from(PLAN_MOVES_MAX).ok();
            let goal = Goal { spared: spared.clone(), moves_max };
            let work = move || {
                let state = image.restored();
                rebalance::NamedPlan::new(&state, &plan(&state, goal))
            };
            ((versions, spared), work)
        };
        let now = || {
            let spared = spared();
            (replicated.read(versions), spared)
        };
        let planned = session.plans().get(call.within, now, begin).await?;
        Ok(planned.with_sizes(session.loads()))
    }

    /// Starts to apply a plan.
    pub(in crate::service) async fn apply(&self, asked: ApplyPlan, call: &Call<'_>) -> Result<PlanApplied> {
        let decide = |state: &ClusterState, _: &Liveness| Ok(rebalance::plan_to_command(state, &asked.plan));
        match self.commit(call, decide).await?.1 {
            Answer::PlanStarted { count, .. } => Ok(PlanApplied { moves_started: count }),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the progress of the present or last plan.
    pub(in crate::service) async fn rebalance(&self, asked: ShowRebalance, call: &Call<'_>) -> Result<RebalancePage> {
        let most = usize::try_from(asked.most.min(MOVES_MAX)).unwrap_or(usize::MAX);
        let session = self.context().confirmed(call.within).await?;
        let progress = session.quorum().replicated().read(|state| {
            check_named(call.cluster(), state)?;
            Ok::<_, ErrorDetail>(rebalance::Progress::new(state, most, MigrationId::new(asked.after)))
        })?;
        Ok(progress.page(session.loads()))
    }

    /// Cancels the rest of a plan.
    pub(in crate::service) async fn cancel(
        &self,
        _: CancelRebalance,
        call: &Call<'_>,
    ) -> Result<RebalanceCancellation> {
        let decide = |state: &ClusterState, _: &Liveness| match state.migrations.active_count() {
            0 => Err(ErrorDetail::new(ErrorKind::NothingRunning, "no rebalance is running")),
            _ => Ok(Command::CancelPlan),
        };
        match self.commit(call, decide).await?.1 {
            Answer::PlanCancelled { undone, too_late } => {
                Ok(RebalanceCancellation { moves_cancelled: undone, moves_too_late: too_late })
            }
            other => Err(unexpected(&other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use archon_coordinator_core::{MoveKind, MoveReason, PlannedMove};
    use archon_types::{NodeId, PartitionId, PlacementId, TableId, Version};

    /// Largest entry of the coordinators' log: half a segment, less what belongs to the request.
    const ENTRY_BYTES_MAX: usize = 8 * 1024 * 1024 - 4_096;

    #[test]
    fn longest_plan_fits_into_one_entry() {
        let most = u32::MAX;
        let planned = PlannedMove {
            kind: MoveKind::Leadership,
            partition: PartitionId { table: TableId::new(most.into()), index: most },
            placement: PlacementId::new(most.into()),
            from: NodeId::new(most.into()),
            to: NodeId::new(most.into()),
            reason: MoveReason::PassOn { leads: most, other: most }.to_string(),
            bytes: u64::MAX,
        };
        let version = Version::new(u64::MAX);
        let moves = vec![planned; PLAN_MOVES_MAX];
        let command = Command::StartPlan { table_version: version, moves_version: version, moves };
        let bytes = rmp_serde::to_vec_named(&command).unwrap().len();
        assert!(bytes <= ENTRY_BYTES_MAX, "{bytes} bytes");
    }
}
