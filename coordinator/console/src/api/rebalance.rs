//! Operations on rebalance plans and their moves.

use super::asker::Asker;
use super::extract::Body;
use super::nodes::EmptyObject;
use crate::error::ApiError;
use archon_client::{Plan, RebalanceCancellation, RebalanceStatus};
use axum::Json;
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of reported moves.
pub(crate) const MOVES_MAX: u32 = 256;

/// Outcome of applying a plan.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PlanOutcome {
    /// Table version that the plan was computed for.
    table_version: u64,
    /// Number of moves started.
    moves_started: u32,
}

pub(crate) async fn status(asker: Asker) -> Result<Json<RebalanceStatus>, ApiError> {
    Ok(Json(asker.reader("RebalanceStatus")?.rebalance_progress(MOVES_MAX).await?))
}

pub(crate) async fn plan(asker: Asker) -> Result<Json<Plan>, ApiError> {
    Ok(Json(asker.admin("PlanRebalance")?.plan().await?))
}

pub(crate) async fn apply(asker: Asker, body: Body<Plan>) -> Result<Json<PlanOutcome>, ApiError> {
    let (admin, plan) = (asker.admin("ApplyPlan")?, body.read_large().await?);
    let moves_started = admin.apply(&plan).await?;
    Ok(Json(PlanOutcome { table_version: plan.table_version.get(), moves_started }))
}

pub(crate) async fn cancel(asker: Asker, body: Body<EmptyObject>) -> Result<Json<RebalanceCancellation>, ApiError> {
    let (admin, EmptyObject {}) = (asker.admin("CancelRebalance")?, body.read().await?);
    Ok(Json(admin.cancel().await?))
}
