//! Readiness of a node, for probes and load balancers.

use crate::node::config::NodeConfig;
use crate::node::lifecycle::Lifecycle;
use crate::node::membership::Membership;
use crate::server::health::{Health, Stall};
use archon_session::Clock;
use archon_types::DiskFull;
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
    config: Arc<NodeConfig>,
    clock: Arc<dyn Clock>,
    membership: Arc<Membership>,
    lifecycle: Arc<Lifecycle>,
    health: Arc<Health>,
}

impl Readiness {
    /// Creates the check of a node.
    pub(crate) const fn new(
        config: Arc<NodeConfig>,
        clock: Arc<dyn Clock>,
        membership: Arc<Membership>,
        lifecycle: Arc<Lifecycle>,
        health: Arc<Health>,
    ) -> Self {
        Self { config, clock, membership, lifecycle, health }
    }

    /// Checks that it is registered, holds a lease, is not stopping and accepts writes.
    ///
    /// # Errors
    /// The most severe obstacle.
    pub(crate) fn check(&self) -> Result<(), NotReady> {
        let name = || self.config.name.clone();
        if self.lifecycle.leaving().is_cancelled() || self.lifecycle.is_stopping() {
            return Err(NotReady::Stopping(name()));
        }
        if self.membership.life().is_none() {
            if let Err(stall) = self.health.check(self.membership.lease_ms()) {
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
        self.membership.life().is_some_and(|life| life.grants.is_valid(self.clock.now()))
    }

    /// Returns the shortage of the disk, if it accepts no writes.
    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        self.health.disk_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flusher::{Flusher, FlusherConfig};
    use crate::node::clock::WallClock;
    use crate::node::grants::Grants;
    use crate::node::membership::CurrentRegistration;
    use crate::node::memory::MemoryParts;
    use crate::node::state::NodeState;
    use crate::server::health::Pulse;
    use archon_kv::MemoryEngine;
    use archon_proto::convert::members::session::Member;
    use archon_types::{ClusterId, GenerationKey, Incarnation, LeaseTiming, Millis, NodeId, Settings};
    use archon_wal::{Wal, WalConfig};
    use std::sync::atomic::{AtomicU64, Ordering};
    use uuid::Uuid;

    struct SetClock(AtomicU64);

    impl Clock for SetClock {
        fn now(&self) -> Millis {
            Millis::new(self.0.load(Ordering::Relaxed))
        }
    }

    /// A cluster with a longer lease than the default registered the node, and `/readyz` named a stall.
    #[test]
    fn stall_is_judged_by_the_lease_of_the_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let config = NodeConfig::new("athens", "127.0.0.1:0", vec!["127.0.0.1:1".into()], directory.path().into());
        let clock = Arc::new(SetClock(AtomicU64::new(1_000)));
        let shared = Arc::new(NodeState::new(config, MemoryParts::of(0), clock.clone(), Arc::new(WallClock)));
        let engine = Arc::new(MemoryEngine::new());
        let flusher = Flusher::start(engine, FlusherConfig::default(), |_| {}, || {}).unwrap();
        let (wal, _) = Wal::open(&directory.path().join("wal"), WalConfig::default()).unwrap();
        let pulse = Arc::new(Pulse::default());
        pulse.begin(clock.now());
        let health = Health::new(
            Arc::clone(&shared.config),
            clock.clone(),
            Arc::clone(&shared.load),
            vec![pulse],
            wal,
            flusher.handle(),
            u64::MAX,
        );
        let (membership, lifecycle) = (Arc::clone(&shared.membership), Arc::clone(&shared.lifecycle));
        let readiness =
            Readiness::new(Arc::clone(&shared.config), clock.clone(), membership, lifecycle, Arc::new(health));

        let usual = Settings::default();
        let lease_ms = usual.timing.lease_ms * 10;
        let settings = Settings { timing: LeaseTiming { lease_ms, ..usual.timing }, ..usual.clone() };
        let cluster = ClusterId::new(Uuid::from_u128(7));
        let member = Member { cluster, node: NodeId::new(1), incarnation: Incarnation::new(1) };
        shared.membership.begin_life(CurrentRegistration::new(
            member,
            GenerationKey::NIL,
            &settings,
            Arc::new(Grants::new()),
        ));
        shared.membership.end_life();
        clock.0.store(1_000 + usual.timing.lease_ms * 5, Ordering::Relaxed);
        assert_eq!(readiness.check(), Err(NotReady::NotRegistered("athens".to_owned())));
        clock.0.store(1_001 + lease_ms, Ordering::Relaxed);
        assert!(matches!(readiness.check(), Err(NotReady::Stalled { .. })), "{:?}", readiness.check());
    }
}
