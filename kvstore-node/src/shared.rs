//! What the parts of a running node share.

use crate::access::ClientAccess;
use crate::admit::NodeAdmission;
use crate::config::NodeConfig;
use crate::copy_pace::CopyPace;
use crate::grants::Grants;
use crate::load::LoadBoard;
use crate::memory::MemoryParts;
use crate::metrics::Metrics;
use crate::reports::ReportQueue;
use crate::session::doors::DoorKeeper;
use crate::session::remembered::Remembered;
use crate::slow::SlowOperations;
use crate::tables::Tables;
use arc_swap::{ArcSwap, ArcSwapOption};
use archon_member::Rows;
use archon_proto::convert::session::Member;
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
    /// Of the generation in which it was given.
    pub(crate) generation_key: GenerationKey,
    /// Heartbeat and lease of the cluster; they never change.
    pub(crate) timing: LeaseTiming,
    /// How long a follower may leave its leader without an answer, as the last answer to a heartbeat said.
    replication_timeout_ms: AtomicU64,
    /// What the coordinator grants this incarnation.
    pub(crate) grants: Arc<Grants>,
    /// Cancelled when somebody who holds a row that ended this life has said so.
    pub(crate) over: CancellationToken,
}

impl Life {
    /// A registration that was answered with these settings.
    pub(crate) fn new(member: Member, generation_key: GenerationKey, settings: &Settings, grants: Arc<Grants>) -> Self {
        let replication_timeout_ms = AtomicU64::new(settings.replication_timeout_ms);
        let timing = settings.timing;
        Self { member, generation_key, timing, replication_timeout_ms, grants, over: CancellationToken::new() }
    }

    /// How long a follower may leave its leader without an answer.
    pub(crate) fn replication_timeout_ms(&self) -> u64 {
        self.replication_timeout_ms.load(Ordering::Relaxed)
    }

    /// What a coordinator says of it by now. An answer that was overtaken is put right by the next one. Returns whether it
    /// is another one.
    pub(crate) fn note_replication_timeout(&self, millis: u64) -> bool {
        self.replication_timeout_ms.swap(millis, Ordering::Relaxed) != millis
    }
}

/// The node's common ground. Everything in it is safe to use from any thread.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) slow: SlowOperations,
    /// How fast copies from and to this node go.
    copy_pace: CopyPace,
    pub(crate) tables: Tables,
    /// What clients may do.
    pub(crate) access: ClientAccess,
    pub(crate) reports: ReportQueue,
    pub(crate) load: LoadBoard,
    pub(crate) admission: NodeAdmission,
    /// How its memory is divided.
    pub(crate) memory: MemoryParts,
    /// With which this process registers, or registered last.
    boot: ArcSwapOption<BootId>,
    /// Given to the coordinators that this node calls; pushes that do not show it are not theirs.
    pub(crate) push_key: PushKey,
    /// As many connections as were configured, or as there are descriptors for.
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    /// The present registration, once there is one.
    life: ArcSwapOption<Life>,
    /// The lease that shards look at: the present life's, or one that was never granted.
    grants: ArcSwap<Grants>,
    /// The protocol that the cluster speaks, as coordinators said last.
    protocol: watch::Sender<u32>,
    /// Streams of members whose heartbeats this node carries.
    pub(crate) relay_streams: RelayStreams,
    /// What it finds at the doors of others.
    pub(crate) doors: DoorKeeper,
    /// Cancelled when the node is about to stop: it still serves, until what it leads is in other hands.
    leaving: CancellationToken,
    /// Cancelled once the coordinator has heard of that.
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

    /// Takes note of the protocol that a coordinator says the cluster speaks; it only rises. One that this node does not speak is
    /// nobody's word: the cluster does not rise over a member (PROTOCOL rule 63).
    pub(crate) fn note_protocol(&self, protocol: u32) {
        if !self.config.speaks.contains(protocol) {
            tracing::warn!(protocol, speaks = %self.config.speaks, "a coordinator says that the cluster speaks what this node does not");
            return;
        }
        self.protocol.send_if_modified(|known| {
            let rises = protocol > *known;
            *known = protocol.max(*known);
            rises
        });
    }

    /// The protocol that the cluster speaks, as a channel that tells when it rises.
    pub(crate) fn protocol(&self) -> watch::Receiver<u32> {
        self.protocol.subscribe()
    }

    /// The boot id with which this process registers, or registered last.
    pub(crate) fn boot(&self) -> Option<BootId> {
        self.boot.load().as_deref().copied()
    }

    /// This process registers with `boot` from now on. Said before the first attempt: the coordinator may ask.
    pub(crate) fn register_as(&self, boot: BootId) {
        self.boot.store(Some(Arc::new(boot)));
    }

    /// The present registration.
    pub(crate) fn life(&self) -> Option<Arc<Life>> {
        self.life.load_full()
    }

    /// The present lease.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        self.grants.load_full()
    }

    /// A new registration counts from now on. Every shard must have forgotten the former one's leaderships before.
    pub(crate) fn begin_life(&self, life: Life) {
        self.tables.note_told(Version::new(life.member.incarnation.get()));
        self.grants.store(Arc::clone(&life.grants));
        self.life.store(Some(Arc::new(life)));
    }

    /// The present registration is over: its lease ends at once.
    pub(crate) fn end_life(&self) {
        if let Some(life) = self.life.swap(None) {
            life.grants.end();
        }
        self.reports.clear();
    }

    /// Whether a life of another node is over, by a row that is held here: what that life says is refused, and it is told so (PROTOCOL
    /// rule 72). Nobody is before the cluster speaks so.
    pub(crate) fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over> {
        if *self.protocol.borrow() < OVER_SINCE {
            return None;
        }
        self.tables.over(node, incarnation)
    }

    /// Somebody called `by`, whom this node asked, says that a life is over. If it is the present one, its lease has ended with this, and
    /// the session registers anew. Returns whether it is.
    pub(crate) fn told_over(&self, by: &str, over: Over) -> bool {
        let Some(life) = self.life().filter(|life| life.grants.told_over(life.member, over)) else { return false };
        self.metrics.lives_told_over.add(1);
        let incarnation = life.member.incarnation;
        tracing::warn!(%incarnation, "told by {by} that this life ended at version {}; registering anew", over.version);
        life.over.cancel();
        true
    }

    /// Copies from or to this node have worked for so long.
    pub(crate) fn copies_worked(&self, worked: Duration) {
        self.copy_pace.worked(worked, self.used(), Instant::now());
    }

    /// Waits as long as copies from and to this node are to rest; whether they are to at all now and then, because it is used.
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

    /// What was done for clients so far: operations taken in, and entries committed here or elsewhere of which this node has a copy.
    fn used(&self) -> u64 {
        self.metrics.operations.get() + self.metrics.commits.get()
    }

    /// Cancelled when the node is about to stop, but still serves.
    pub(crate) fn leaving(&self) -> &CancellationToken {
        &self.leaving
    }

    /// Cancelled once a coordinator has answered a heartbeat that said so, and so grants this node nothing new.
    pub(crate) fn leaving_heard(&self) -> &CancellationToken {
        &self.leaving_heard
    }

    /// Refuses certificates that were withdrawn, as the coordinators have told: those who show them, and those who are connected by them.
    pub(crate) fn refuse_withdrawn(&self) {
        if let Some(tls) = self.config.transport.tls() {
            tls.withdraw(self.access.withdrawn());
        }
    }

    /// The node refuses new work from now on.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the node refuses new work.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A part failed beyond repair: nothing is answered any more, and the node stops.
    pub(crate) fn fail(&self) {
        self.end_life();
        self.stop();
        self.failed.cancel();
    }

    /// Cancelled once a part has failed.
    pub(crate) fn failed(&self) -> &CancellationToken {
        &self.failed
    }

    /// The life that a message for `cluster`, `node` and `incarnation` is meant for, if it is the present one
    /// (invariant I).
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

/// The refusal of a node that is stopping.
pub(crate) fn shutting_down() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::ShuttingDown, "the node is stopping; its partitions move or come back with it")
}
