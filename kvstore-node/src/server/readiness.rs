//! Readiness of a node, for probes and load balancers.

use crate::node::shared::Shared;
use crate::server::health::{Health, Stall};
use archon_types::{DiskFull, Settings};
use std::sync::Arc;

/// Reason why a node is not ready.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotReady {
    /// The node is stopping, or a part of it has failed.
    #[error("node {0} is stopping")]
    Stopping(String),
    /// No coordinator has registered it.
    #[error(
        "node {0} is not registered with a coordinator; see that more than half of the coordinators run and that it reaches them"
    )]
    NotRegistered(String),
    /// A component makes no progress, so that the node does not register.
    #[error("node {name} does not register: {stall}; see to its disk, or restart it")]
    Stalled {
        /// Its name.
        name: String,
        /// The component.
        stall: Stall,
    },
    /// The coordinator has granted no lease, or not recently.
    #[error("node {0} holds no lease; see that more than half of the coordinators run and that it reaches them")]
    NoLease(String),
    /// New writes are refused.
    #[error("the disk of node {name} is full, {lack}; reads go on, and writes do by themselves once there is space")]
    DiskFull {
        /// Its name.
        name: String,
        /// The shortage.
        lack: DiskFull,
    },
}

/// Readiness check of a node.
#[derive(Clone)]
pub(crate) struct Readiness {
    shared: Arc<Shared>,
    health: Arc<Health>,
}

impl Readiness {
    /// Creates the check for the node of `shared`.
    pub(crate) const fn new(shared: Arc<Shared>, health: Arc<Health>) -> Self {
        Self { shared, health }
    }

    /// Checks that it is registered, holds a lease, is not stopping and accepts writes.
    ///
    /// # Errors
    /// The most severe obstacle.
    pub(crate) fn check(&self) -> Result<(), NotReady> {
        let name = || self.shared.config.name.clone();
        if self.shared.leaving().is_cancelled() || self.shared.is_stopping() {
            return Err(NotReady::Stopping(name()));
        }
        if self.shared.life().is_none() {
            if let Err(stall) = self.health.check(Settings::default().timing.lease_ms) {
                return Err(NotReady::Stalled { name: name(), stall });
            }
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

    /// Returns whether it holds a lease now.
    pub(crate) fn is_leased(&self) -> bool {
        self.shared.life().is_some_and(|life| life.grants.is_valid(self.shared.clock.now()))
    }

    /// Returns the shortage of the disk, if it accepts no writes.
    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        self.health.disk_full(&self.shared)
    }
}
