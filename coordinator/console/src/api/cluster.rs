//! Operations on the cluster as a whole.

use super::asker::Asker;
use super::extract::Query;
use crate::error::ApiError;
use crate::feed::{CoordinatorView, quorum_of};
use archon_client::{Event, SettingsSummary, Status};
use axum::Json;
use schemars::JsonSchema;
use serde::Deserialize;

/// Default number of events.
const EVENTS_DEFAULT: u32 = 100;

/// Limit of the list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventLimit {
    /// Maximum number of events, up to 10,000; default: 100.
    most: Option<u32>,
}

pub(crate) async fn status(asker: Asker) -> Result<Json<Status>, ApiError> {
    Ok(Json(asker.reader("Status")?.status().await?))
}

pub(crate) async fn quorum(asker: Asker) -> Result<Json<Vec<CoordinatorView>>, ApiError> {
    asker.may("/archon.v1.Admin/Quorum")?;
    Ok(Json(quorum_of(&asker.shared().cluster).await))
}

pub(crate) async fn events(asker: Asker, Query(asked): Query<EventLimit>) -> Result<Json<Vec<Event>>, ApiError> {
    Ok(Json(asker.reader("Events")?.events(asked.most.unwrap_or(EVENTS_DEFAULT)).await?))
}

pub(crate) async fn settings(asker: Asker) -> Result<Json<SettingsSummary>, ApiError> {
    Ok(Json(asker.reader("ListSettings")?.settings().await?))
}
