//! Reasons for the end of a running coordinator, and their detection.

use crate::error::CoordinatorError;
use crate::raft::Quorum;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Reason why a running coordinator cannot continue.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// A part of it has failed.
    Failed(Arc<str>),
    /// It is no longer a member.
    Removed,
    /// This generation has begun without it.
    Outlived(u64),
    /// Its state differs from the majority's as of this entry.
    WrongState(u64),
    /// Its directory is an older copy, with the evidence.
    OlderCopy(Arc<str>),
}

/// Channel for the reason why this coordinator cannot continue.
pub(crate) type FailureChannel = Arc<watch::Sender<Option<End>>>;

impl End {
    /// Returns the error with which coordinator `id` ends.
    pub(crate) fn error(self, id: u64) -> CoordinatorError {
        match self {
            Self::Removed => CoordinatorError::Removed { id },
            Self::Outlived(generation) => CoordinatorError::Outlived { id, generation },
            Self::WrongState(index) => CoordinatorError::WrongState { id, index },
            Self::OlderCopy(why) => CoordinatorError::OlderCopy { why: why.to_string() },
            Self::Failed(what) => CoordinatorError::Raft { what: what.to_string() },
        }
    }

    /// Returns and logs the reason why this coordinator cannot continue, if there is one.
    fn of(quorum: &Quorum) -> Option<Self> {
        let id = quorum.id();
        if let Some(what) = quorum.view().fatal {
            tracing::error!(what, "raft ended");
            return Some(Self::Failed(what.into()));
        }
        if let Some(why) = quorum.outdated() {
            tracing::error!(why, "this coordinator must not vote");
            return Some(Self::OlderCopy(why.into()));
        }
        if let Some(index) = quorum.wrong_state() {
            tracing::error!(id, index, "this coordinator's state is not that of the majority");
            return Some(Self::WrongState(index));
        }
        if let Some(generation) = quorum.later_generation() {
            tracing::warn!(id, generation, "the quorum was recovered without this coordinator");
            return Some(Self::Outlived(generation));
        }
        quorum.is_removed().then(|| {
            tracing::warn!(id, "this coordinator was removed from the quorum");
            Self::Removed
        })
    }
}

/// Reports when Raft ended by itself, by a storage error or a panic in it, and when this coordinator is no longer a
/// member.
pub(crate) async fn watch_health(quorum: Quorum, work: CancellationToken, failed: FailureChannel) {
    let mut raft_ended = std::pin::pin!(quorum.raft_ended());
    loop {
        let ended = tokio::select! {
            () = work.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => false,
            () = &mut raft_ended => true,
        };
        if ended && quorum.view().fatal.is_none() {
            // Raft reports a failure of the disk itself, but not a panic.
            tracing::error!("raft ended without a reason: something in it has panicked");
            failed.send_replace(Some(End::Failed("raft ended without a reason; the log shows the panic".into())));
            return;
        }
        if let Some(end) = End::of(&quorum) {
            failed.send_replace(Some(end));
            return;
        }
    }
}
