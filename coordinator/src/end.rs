//! Why a coordinator that runs cannot go on, and who finds out.

use crate::error::CoordinatorError;
use crate::raft::Quorum;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Why a coordinator that runs cannot go on.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Something in it has failed.
    Failed(Arc<str>),
    /// It is no member any more.
    Removed,
    /// This generation has begun without it.
    Outlived(u64),
    /// Its state is not that of the majority, as of this entry.
    WrongState(u64),
    /// Its directory is an older copy, and how that shows.
    OlderCopy(Arc<str>),
}

/// Tells why this coordinator cannot go on.
pub(crate) type Ending = Arc<watch::Sender<Option<End>>>;

impl End {
    /// The error with which coordinator `id` ends.
    pub(crate) fn error(self, id: u64) -> CoordinatorError {
        match self {
            Self::Removed => CoordinatorError::Removed { id },
            Self::Outlived(generation) => CoordinatorError::Outlived { id, generation },
            Self::WrongState(index) => CoordinatorError::WrongState { id, index },
            Self::OlderCopy(why) => CoordinatorError::OlderCopy { why: why.to_string() },
            Self::Failed(what) => CoordinatorError::Raft { what: what.to_string() },
        }
    }

    /// Whether this coordinator cannot go on, and why; said in the log.
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
            tracing::warn!(id, generation, "the quorum was begun anew without this coordinator");
            return Some(Self::Outlived(generation));
        }
        quorum.is_removed().then(|| {
            tracing::warn!(id, "this coordinator was removed from the quorum");
            Self::Removed
        })
    }
}

/// Tells when Raft ended by itself, by a storage error or a panic in it, and when this coordinator is a member no more.
pub(crate) async fn watch_health(quorum: Quorum, work: CancellationToken, failed: Ending) {
    let mut raft_ended = std::pin::pin!(quorum.raft_ended());
    loop {
        let ended = tokio::select! {
            () = work.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => false,
            () = &mut raft_ended => true,
        };
        if ended && quorum.view().fatal.is_none() {
            // It tells of a failure of the disk itself, but not of a panic.
            tracing::error!("raft ended without a reason: something in it has panicked");
            failed
                .send_replace(Some(End::Failed("raft ended without a reason; the log says where it panicked".into())));
            return;
        }
        if let Some(end) = End::of(&quorum) {
            failed.send_replace(Some(end));
            return;
        }
    }
}
