//! Readiness: a coordinator's part in its quorum, for probes and load balancers.

use crate::service::Context;
use archon_types::ErrorDetail;

/// Reason why a coordinator is not ready.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotReady {
    /// It is stopping.
    #[error("coordinator {0} is stopping")]
    Stopping(u64),
    /// It is not part of a quorum yet, or knows no leader.
    #[error("{}", .0.message)]
    NoQuorum(ErrorDetail),
}

/// Checks that it knows a leader: another one, or itself if a majority hears it.
///
/// # Errors
/// The obstacle.
pub(crate) fn ready(context: &Context) -> Result<(), NotReady> {
    if context.stop.is_cancelled() {
        return Err(NotReady::Stopping(context.id));
    }
    context.quorum().and_then(|quorum| quorum.check_leader()).map_err(NotReady::NoQuorum)
}

/// Checks that it can continue: Raft ends with the first error of its disk.
///
/// # Errors
/// The reason for the end of Raft.
pub(crate) fn alive(context: &Context) -> Result<(), String> {
    match context.quorum.get().and_then(|quorum| quorum.view().fatal) {
        Some(what) => Err(format!("Raft has stopped: {what}; restart this coordinator, and check its disk")),
        None => Ok(()),
    }
}
