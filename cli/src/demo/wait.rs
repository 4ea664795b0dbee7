//! Waiting for a step of the story to come about.

use crate::exit::Failure;
pub(super) use archon_local_cluster::Look;
use std::time::Duration;

/// Looks until the condition holds, and says how long that took.
///
/// # Errors
/// After `limit`: what was waited for and the last state. An error of the look itself ends the waiting at once.
pub(super) async fn wait_for<T>(
    what: &str,
    limit: Duration,
    look: impl AsyncFnMut() -> Result<Look<T>, Failure>,
) -> Result<(T, Duration), Failure> {
    archon_local_cluster::wait_for(what, limit, look).await
}
