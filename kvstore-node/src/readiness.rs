//! Whether a node takes part in its cluster now: what probes and load balancers are told.

use crate::health::Health;
use crate::shared::Shared;
use archon_types::DiskFull;
use std::sync::Arc;

/// Why a node does not serve as it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotReady {
    /// It was told to stop, or a part has failed.
    #[error("node {0} is stopping")]
    Stopping(String),
    /// No coordinator has registered it.
    #[error(
        "node {0} is not registered with a coordinator; see that more than half of the coordinators run and that it reaches them"
    )]
    NotRegistered(String),
    /// The coordinator has granted nothing, or not for a while.
    #[error("node {0} holds no lease; see that more than half of the coordinators run and that it reaches them")]
    NoLease(String),
    /// New writes are refused.
    #[error("the disk of node {name} is full, {lack}; reads go on, and writes do by themselves once there is space")]
    DiskFull {
        /// Its name.
        name: String,
        /// What is missing.
        lack: DiskFull,
    },
}

/// Looks at a node.
#[derive(Clone)]
pub(crate) struct Readiness {
    shared: Arc<Shared>,
    health: Arc<Health>,
}

impl Readiness {
    /// Looks at the node of `shared`.
    pub(crate) const fn new(shared: Arc<Shared>, health: Arc<Health>) -> Self {
        Self { shared, health }
    }

    /// Whether it is registered, holds a lease, is not about to stop and takes writes.
    ///
    /// # Errors
    /// What stands in the way, the worst first.
    pub(crate) fn check(&self) -> Result<(), NotReady> {
        let name = || self.shared.config.name.clone();
        if self.shared.leaving().is_cancelled() || self.shared.is_stopping() {
            return Err(NotReady::Stopping(name()));
        }
        if self.shared.life().is_none() {
            return Err(NotReady::NotRegistered(name()));
        }
        if !self.is_leased() {
            return Err(NotReady::NoLease(name()));
        }
        match self.disk_full() {
            Some(lack) => Err(NotReady::DiskFull { name: name(), lack }),
            None => Ok(()),
        }
    }

    /// Whether it holds a lease now.
    pub(crate) fn is_leased(&self) -> bool {
        self.shared.life().is_some_and(|life| life.grants.is_valid(self.shared.clock.now()))
    }

    /// What the disk lacks to take writes.
    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        self.health.disk_full(&self.shared)
    }
}
