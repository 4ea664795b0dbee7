//! Membership of this node: its present registration, its lease, and the cluster's protocol.

use crate::node::config::NodeConfig;
use crate::node::grants::Grants;
use crate::session::reports::ReportQueue;
use crate::statistics::metrics::Metrics;
use crate::tables::Tables;
use arc_swap::{ArcSwap, ArcSwapOption};
use archon_member::Rows;
use archon_proto::convert::members::session::Member;
use archon_types::{
    BootId, ClusterId, ErrorDetail, ErrorKind, FencingProof, GenerationKey, Incarnation, LeaseTiming, NodeId,
    OVER_SINCE, PROTOCOL_FIRST, Settings, Version, carried_max,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One registration of this node.
#[derive(Debug)]
pub(crate) struct CurrentRegistration {
    /// Cluster, node and incarnation.
    pub(crate) member: Member,
    /// Key of the generation in which it was given.
    pub(crate) generation_key: GenerationKey,
    /// Heartbeat and lease timing of the cluster; they never change.
    pub(crate) timing: LeaseTiming,
    /// Time for which a follower may leave its leader without an answer, from the last answer to a heartbeat.
    replication_timeout_ms: AtomicU64,
    /// Lease granted to this incarnation.
    pub(crate) grants: Arc<Grants>,
    /// Cancelled when a holder of the row that fenced this incarnation has reported that.
    pub(crate) over: CancellationToken,
}

impl CurrentRegistration {
    /// Creates a registration with the settings of its answer.
    pub(crate) fn new(member: Member, generation_key: GenerationKey, settings: &Settings, grants: Arc<Grants>) -> Self {
        let replication_timeout_ms = AtomicU64::new(settings.replication_timeout_ms);
        let timing = settings.timing;
        Self { member, generation_key, timing, replication_timeout_ms, grants, over: CancellationToken::new() }
    }

    /// Returns the time for which a follower may leave its leader without an answer.
    pub(crate) fn replication_timeout_ms(&self) -> u64 {
        self.replication_timeout_ms.load(Ordering::Relaxed)
    }

    /// Records the present value of a coordinator. The next answer corrects one that was overtaken. Returns whether it
    /// changed.
    pub(crate) fn note_replication_timeout(&self, millis: u64) -> bool {
        self.replication_timeout_ms.swap(millis, Ordering::Relaxed) != millis
    }
}

/// Registrations of this node, one after the other.
pub(crate) struct Membership {
    config: Arc<NodeConfig>,
    tables: Arc<Tables>,
    /// Reports of the present registration.
    reports: Arc<ReportQueue>,
    metrics: Arc<Metrics>,
    /// Boot id of this process's last registration.
    boot: ArcSwapOption<BootId>,
    /// The present registration, once there is one.
    life: ArcSwapOption<CurrentRegistration>,
    /// Length of a lease in the cluster, as of the last registration, in milliseconds.
    lease_ms: AtomicU64,
    /// The lease read by shards: the present incarnation's, or one that was never granted.
    grants: ArcSwap<Grants>,
    /// The cluster's protocol, as last received from coordinators.
    protocol: watch::Sender<u32>,
}

impl Membership {
    /// Creates the membership of a node that has not registered yet.
    pub(crate) fn new(
        config: Arc<NodeConfig>,
        tables: Arc<Tables>,
        reports: Arc<ReportQueue>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            config,
            tables,
            reports,
            metrics,
            boot: ArcSwapOption::empty(),
            life: ArcSwapOption::empty(),
            lease_ms: AtomicU64::new(Settings::default().timing.lease_ms),
            grants: ArcSwap::from_pointee(Grants::new()),
            protocol: watch::Sender::new(PROTOCOL_FIRST),
        }
    }

    /// Records the cluster's protocol from a coordinator; it only rises. One that this node does not support is
    /// ignored: the cluster does not rise above a member (PROTOCOL rule 63).
    pub(crate) fn note_protocol(&self, protocol: u32) {
        if !self.config.speaks.contains(protocol) {
            tracing::warn!(protocol, speaks = %self.config.speaks, "a coordinator reports a protocol of the cluster \
                                                                    that this node does not support");
            return;
        }
        self.protocol.send_if_modified(|known| {
            let rises = protocol > *known;
            *known = protocol.max(*known);
            rises
        });
    }

    /// Returns the cluster's protocol, as a channel that notifies when it rises.
    pub(crate) fn protocol(&self) -> watch::Receiver<u32> {
        self.protocol.subscribe()
    }

    /// Returns the boot id of this process's last registration.
    pub(crate) fn boot(&self) -> Option<BootId> {
        self.boot.load().as_deref().copied()
    }

    /// Sets the boot id before the first attempt to register with it: the coordinator may ask for it.
    pub(crate) fn register_as(&self, boot: BootId) {
        self.boot.store(Some(Arc::new(boot)));
    }

    /// Returns the present registration.
    pub(crate) fn life(&self) -> Option<Arc<CurrentRegistration>> {
        self.life.load_full()
    }

    /// Returns the length of a lease in the cluster, in milliseconds; the default before the first registration. A part
    /// of the node without progress for longer keeps it from registering.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease_ms.load(Ordering::Relaxed)
    }

    /// Returns the present lease.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        self.grants.load_full()
    }

    /// Starts a new registration. Every shard must have ended the former one's leaderships before.
    pub(crate) fn begin_life(&self, life: CurrentRegistration) {
        self.tables.note_told(Version::new(life.member.incarnation.get()));
        self.lease_ms.store(life.timing.lease_ms, Ordering::Relaxed);
        self.grants.store(Arc::clone(&life.grants));
        self.life.store(Some(Arc::new(life)));
    }

    /// Ends the present registration and, at once, its lease.
    pub(crate) fn end_life(&self) {
        if let Some(life) = self.life.swap(None) {
            life.grants.end();
        }
        self.reports.clear();
    }

    /// Returns the report that an incarnation of another node is fenced, by a row held here: its messages are refused
    /// with that report (PROTOCOL rule 72). Returns `None` before the cluster's protocol supports it.
    pub(crate) fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof> {
        if *self.protocol.borrow() < OVER_SINCE {
            return None;
        }
        self.tables.over(node, incarnation)
    }

    /// Processes a report of `by`, which this node asked, that an incarnation is fenced. If it is the present one, its
    /// lease ends with this, and the session registers again. Returns whether it is.
    pub(crate) fn told_over(&self, by: &str, over: FencingProof) -> bool {
        let Some(life) = self.life().filter(|life| life.grants.told_over(life.member, over)) else { return false };
        self.metrics.lives_told_over.add(1);
        let incarnation = life.member.incarnation;
        tracing::warn!(%incarnation, "{by} reports that this incarnation ended at version {}; registering again", over.version);
        life.over.cancel();
        true
    }

    /// Returns the registration that a message for `cluster`, `node` and `incarnation` is meant for, if it is the
    /// present one (invariant I).
    ///
    /// # Errors
    /// `WrongCluster`, `WrongNode`, `StaleIncarnation`, or `Unavailable` before the first registration.
    pub(crate) fn addressed(
        &self,
        cluster: ClusterId,
        node: NodeId,
        incarnation: Option<Incarnation>,
    ) -> Result<Arc<CurrentRegistration>, ErrorDetail> {
        let Some(life) = self.life() else {
            let why = format!("node {} is not registered with a coordinator yet", self.config.name);
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why));
        };
        let mine = life.member;
        if cluster != mine.cluster {
            let why = format!("the request is for cluster {cluster}, but this is cluster {}", mine.cluster);
            return Err(ErrorDetail::new(ErrorKind::WrongCluster, why));
        }
        if node != mine.node {
            let why = format!("the request is for node {node}, but this is node {} ({})", mine.node, self.config.name);
            return Err(ErrorDetail::new(ErrorKind::WrongNode, why));
        }
        if let Some(incarnation) = incarnation
            && incarnation != mine.incarnation
        {
            let why = format!("the request is for incarnation {incarnation}, but this is {}", mine.incarnation);
            return Err(ErrorDetail::new(ErrorKind::StaleIncarnation, why)
                .with_have_need(mine.incarnation.get(), incarnation.get()));
        }
        Ok(life)
    }
}

impl Rows for Membership {
    fn members_max(&self) -> usize {
        carried_max(self.tables.nodes_alive())
    }

    fn is_node(&self, member: NodeId) -> bool {
        self.tables.node(member).is_some()
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof> {
        Self::over(self, node, incarnation)
    }
}
