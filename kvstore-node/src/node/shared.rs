//! Shared state of the parts of a running node.

use crate::copies::copy_pace::CopyPace;
use crate::node::config::NodeConfig;
use crate::node::grants::Grants;
use crate::node::memory::MemoryParts;
use crate::server::access::ClientAccess;
use crate::server::admit::NodeAdmission;
use crate::server::table_lookup::TableLookup;
use crate::session::doors::DoorKeeper;
use crate::session::remembered::Remembered;
use crate::session::reports::ReportQueue;
use crate::statistics::load::LoadBoard;
use crate::statistics::metrics::Metrics;
use crate::statistics::slow::SlowOperations;
use crate::tables::Tables;
use arc_swap::{ArcSwap, ArcSwapOption};
use archon_member::Rows;
use archon_proto::convert::members::session::Member;
use archon_security::connection_limit::{ConnectionLimit, NODE_CONNECTIONS_MAX, connections_for};
use archon_session::{Clock, RelayStreams};
use archon_types::{
    BootId, ClusterId, ErrorDetail, ErrorKind, GenerationKey, Incarnation, LeaseTiming, NodeId, OVER_SINCE, Over,
    PROTOCOL_FIRST, PushKey, Settings, Version, carried_max,
};
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One registration of this node.
#[derive(Debug)]
pub(crate) struct Life {
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

impl Life {
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

/// Shared state of a node. Everything in it is safe to use from any thread.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) slow: SlowOperations,
    /// Pace of copies from and to this node.
    copy_pace: CopyPace,
    pub(crate) tables: Tables,
    /// Questions to the coordinators about tables that are not in `tables`.
    pub(crate) lookup: TableLookup,
    /// Client permissions.
    pub(crate) access: ClientAccess,
    pub(crate) reports: ReportQueue,
    pub(crate) load: LoadBoard,
    pub(crate) admission: NodeAdmission,
    /// Division of the node's memory.
    pub(crate) memory: MemoryParts,
    /// Boot id of this process's last registration.
    boot: ArcSwapOption<BootId>,
    /// Given to the coordinators that this node calls; pushes without it are not theirs.
    pub(crate) push_key: PushKey,
    /// Connection limit, as configured or as the available descriptors allow.
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    /// The present registration, once there is one.
    life: ArcSwapOption<Life>,
    /// Length of a lease in the cluster, as of the last registration, in milliseconds.
    lease_ms: AtomicU64,
    /// The lease read by shards: the present incarnation's, or one that was never granted.
    grants: ArcSwap<Grants>,
    /// The cluster's protocol, as last received from coordinators.
    protocol: watch::Sender<u32>,
    /// Streams of members with heartbeats relayed by this node.
    pub(crate) relay_streams: RelayStreams,
    /// Results of probing other nodes.
    pub(crate) doors: DoorKeeper,
    /// Cancelled when the node is about to stop: it still serves, until its leaderships are handed over.
    leaving: CancellationToken,
    /// Cancelled once the coordinator has recorded that.
    leaving_heard: CancellationToken,
    stopping: AtomicBool,
    /// Cancelled when a part fails beyond repair; the node then stops with an error.
    failed: CancellationToken,
}

impl Shared {
    pub(crate) fn new(config: NodeConfig, memory: MemoryParts, clock: Arc<dyn Clock>, wall: Arc<dyn Clock>) -> Self {
        let configured = config.connections_max.and_then(|most| usize::try_from(most).ok());
        let connection_limit = ConnectionLimit::new(
            configured.unwrap_or_else(|| connections_for(NODE_CONNECTIONS_MAX, getrlimit(Resource::Nofile).current)),
        );
        let remembered = Remembered::read(&config.data_dir);
        let coordinators = remembered.first_asked(&config.coordinators);
        Self {
            tables: Tables::new(coordinators, remembered.told),
            lookup: TableLookup::new(config.coordinators.clone(), config.transport.clone()),
            slow: SlowOperations::new(config.slow_operation),
            access: ClientAccess::default(),
            config,
            clock,
            wall,
            metrics: Metrics::default(),
            copy_pace: CopyPace::default(),
            reports: ReportQueue::default(),
            load: LoadBoard::default(),
            admission: NodeAdmission::new(usize::try_from(memory.requests_bytes).unwrap_or(usize::MAX)),
            memory,
            boot: ArcSwapOption::empty(),
            push_key: PushKey::new(uuid::Uuid::new_v4()),
            connection_limit,
            life: ArcSwapOption::empty(),
            lease_ms: AtomicU64::new(Settings::default().timing.lease_ms),
            grants: ArcSwap::from_pointee(Grants::new()),
            protocol: watch::Sender::new(PROTOCOL_FIRST),
            relay_streams: RelayStreams::new(),
            doors: DoorKeeper::default(),
            leaving: CancellationToken::new(),
            leaving_heard: CancellationToken::new(),
            stopping: AtomicBool::new(false),
            failed: CancellationToken::new(),
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
    pub(crate) fn life(&self) -> Option<Arc<Life>> {
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
    pub(crate) fn begin_life(&self, life: Life) {
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
    pub(crate) fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over> {
        if *self.protocol.borrow() < OVER_SINCE {
            return None;
        }
        self.tables.over(node, incarnation)
    }

    /// Processes a report of `by`, which this node asked, that an incarnation is fenced. If it is the present one, its
    /// lease ends with this, and the session registers again. Returns whether it is.
    pub(crate) fn told_over(&self, by: &str, over: Over) -> bool {
        let Some(life) = self.life().filter(|life| life.grants.told_over(life.member, over)) else { return false };
        self.metrics.lives_told_over.add(1);
        let incarnation = life.member.incarnation;
        tracing::warn!(%incarnation, "{by} reports that this incarnation ended at version {}; registering again", over.version);
        life.over.cancel();
        true
    }

    /// Records work of copies from or to this node.
    pub(crate) fn copies_worked(&self, worked: Duration) {
        self.copy_pace.worked(worked, self.used(), Instant::now());
    }

    /// Waits for the rest of copies from and to this node. Returns whether they have to rest at times, because the node
    /// is in use.
    pub(crate) async fn rest_from_copies(&self) -> bool {
        let mut began = None;
        loop {
            let now = Instant::now();
            match self.copy_pace.rest(self.used(), now) {
                Some(rest) if !rest.is_zero() => {
                    began.get_or_insert(now);
                    tokio::time::sleep(rest).await;
                }
                rest => {
                    let rested = began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
                    self.metrics.copies_rested.add(rested);
                    return rest.is_some();
                }
            }
        }
    }

    /// Returns the work for clients so far: operations accepted, and committed entries of which this node has a copy.
    fn used(&self) -> u64 {
        self.metrics.operations.get() + self.metrics.commits.get()
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

    /// Refuses revoked certificates, for new connections and open ones.
    pub(crate) fn refuse_withdrawn(&self) {
        if let Some(tls) = self.config.transport.tls() {
            tls.withdraw(self.access.withdrawn());
        }
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
        self.end_life();
        self.stop();
        self.failed.cancel();
    }

    /// Returns a token cancelled once a part has failed.
    pub(crate) fn failed(&self) -> &CancellationToken {
        &self.failed
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
    ) -> Result<Arc<Life>, ErrorDetail> {
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

impl Rows for Shared {
    fn members_max(&self) -> usize {
        carried_max(self.tables.nodes_alive())
    }

    fn is_node(&self, member: NodeId) -> bool {
        self.tables.node(member).is_some()
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over> {
        Self::over(self, node, incarnation)
    }
}

/// Returns the refusal of a node that is stopping.
pub(crate) fn shutting_down() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::ShuttingDown, "the node is stopping; its partitions move or come back with it")
}
