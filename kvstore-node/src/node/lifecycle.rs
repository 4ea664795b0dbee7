//! Life cycle of a running node: it serves, leaves, stops or fails.

use crate::node::membership::Membership;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

/// Life cycle of a running node.
pub(crate) struct Lifecycle {
    membership: Arc<Membership>,
    /// Cancelled when the node is about to stop: it still serves, until its leaderships are handed over.
    leaving: CancellationToken,
    /// Cancelled once the coordinator has recorded that.
    leaving_heard: CancellationToken,
    stopping: AtomicBool,
    /// Cancelled when a part fails beyond repair; the node then stops with an error.
    failed: CancellationToken,
}

impl Lifecycle {
    /// Creates the life cycle of a node that serves.
    pub(crate) fn new(membership: Arc<Membership>) -> Self {
        Self {
            membership,
            leaving: CancellationToken::new(),
            leaving_heard: CancellationToken::new(),
            stopping: AtomicBool::new(false),
            failed: CancellationToken::new(),
        }
    }

    /// Returns a token cancelled when the node is about to stop, but still serves.
    pub(crate) fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Returns a token cancelled once a coordinator has answered a heartbeat of the leaving node, which then gets no
    /// new grants.
    pub(crate) fn leaving_heard(&self) -> &CancellationToken {
        &self.leaving_heard
    }

    /// Makes the node refuse new work from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns whether the node refuses new work.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Fails the node: a part failed beyond repair, so nothing is answered from now on, and the node stops.
    pub(crate) fn fail(&self) {
        self.membership.end_life();
        self.stop();
        self.failed.cancel();
    }

    /// Returns a token cancelled once a part has failed.
    pub(crate) fn failed(&self) -> &CancellationToken {
        &self.failed
    }
}
