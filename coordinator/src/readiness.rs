//! Whether a coordinator takes part in its quorum now: what probes and load balancers are told.

use crate::service::Context;
use archon_types::ErrorDetail;

/// Why a coordinator does not serve as it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotReady {
    /// It was told to stop.
    #[error("coordinator {0} is stopping")]
    Stopping(u64),
    /// It takes no part in a quorum yet, or knows no leader.
    #[error("{}", .0.message)]
    NoQuorum(ErrorDetail),
}

/// Whether it knows a leader: another one, or itself if more than half hear it.
///
/// # Errors
/// What stands in the way.
pub(crate) fn ready(context: &Context) -> Result<(), NotReady> {
    if context.stop.is_cancelled() {
        return Err(NotReady::Stopping(context.id));
    }
    context.quorum().and_then(|quorum| quorum.check_leader()).map_err(NotReady::NoQuorum)
}

/// Whether it can go on: Raft ends with the first error of its disk.
///
/// # Errors
/// Why Raft ended.
pub(crate) fn alive(context: &Context) -> Result<(), String> {
    match context.quorum.get().and_then(|quorum| quorum.view().fatal) {
        Some(what) => Err(format!("Raft has ended: {what}; start this coordinator anew, and look at its disk")),
        None => Ok(()),
    }
}
