//! A node's life: what starts in which order, and what ends in which order and by when.

use crate::clock::WallClock;
use crate::config::{ConfigError, NodeConfig};
use crate::copy::CopyRunner;
use crate::engine::{Engine, EngineConfig, EngineError, open_or_quarantine};
use crate::flusher::{FlushEvent, Flusher, FlusherConfig, FlusherError};
use crate::forward::Forwards;
use crate::health::{Health, Pulse};
use crate::holdings::Holdings;
use crate::home::DirectoryHome;
use crate::identity::{DataDirectory, IdentityError};
use crate::peer::Peers;
use crate::readiness::Readiness;
use crate::recover::{Recovery, recover};
use crate::server::{Services, serve};
use crate::session::{Session, SessionError};
use crate::shard::{Context, ShardMessage, ShardRuntime, Shards};
use crate::shared::Shared;
use crate::split_search::SplitSearches;
use crate::stats::Stats;
use archon_kv::{DedupLimits, MemtableBudget};
use archon_session::BootClock;
use archon_telemetry::{Family, MetricsServer, Source as _};
use archon_wal::{Wal, WalConfig, WalError};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SERVER_DEADLINE: Duration = Duration::from_secs(2);
const FLUSHER_DEADLINE: Duration = Duration::from_secs(5);
const SHARDS_DEADLINE: Duration = Duration::from_secs(5);
const WAL_DEADLINE: Duration = Duration::from_secs(5);
const RELEASE_POLL: Duration = Duration::from_millis(5);
/// How long a leaving node waits for the coordinator to take note of that.
const LEAVING_HEARD_DEADLINE: Duration = Duration::from_millis(500);
/// How long after the end of the lease a stopping node still hopes for a coordinator, in milliseconds.
const QUORUM_TIMEOUT_MS: u64 = 1_500;
/// How long a leaving node, which leads nothing any more, waits for its copies to be dropped from the Live sets.
const UNCOUNTED_DEADLINE: Duration = Duration::from_secs(1);

/// Why a node cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// An impossible value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The write-ahead log.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The flusher.
    #[error(transparent)]
    Flusher(#[from] FlusherError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The address for metrics cannot be listened on.
    #[error("cannot listen on {address} for metrics: {source}")]
    ListenForMetrics {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The system gave no thread.
    #[error("cannot start a thread: {0}; raise the limit on threads")]
    Thread(#[source] std::io::Error),
    /// The coordinator refuses the node for good.
    #[error(transparent)]
    Session(#[from] Box<SessionError>),
    /// The gRPC server ended by itself.
    #[error("the gRPC server failed: {0}")]
    Server(String),
    /// A part failed beyond repair; the log says which. Nothing acknowledged is lost.
    #[error("a part of the node failed beyond repair; start it again, and it recovers from its log")]
    Failed,
}

/// A running node. Dropping it without [`Node::stop`] leaves threads behind until the process ends.
pub struct Node {
    address: SocketAddr,
    shared: Arc<Shared>,
    shards: Shards,
    stats: Stats,
    /// Tells metrics and health, also while everything else stops.
    metrics_server: Option<MetricsServer>,
    flusher: Option<Flusher>,
    threads: Vec<JoinHandle<()>>,
    peers: Arc<Peers>,
    forwards: Arc<Forwards>,
    copies: Arc<CopyRunner>,
    wal: Wal,
    engine: Arc<dyn Engine>,
    released: Arc<AtomicBool>,
    session_end: CancellationToken,
    session: oneshot::Receiver<Result<(), SessionError>>,
    /// Cancelled when the session has ended by itself.
    ended: CancellationToken,
    services_end: CancellationToken,
    /// Readers of incoming streams and senders of copies.
    service_tasks: TaskTracker,
    size_scan: tokio::task::JoinHandle<()>,
    split_search: tokio::task::JoinHandle<()>,
    server: tokio::task::JoinHandle<Result<(), tonic::transport::Error>>,
    /// Its lock is held until everything else has ended.
    directory: Arc<Mutex<DataDirectory>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What is opened from the data directory.
struct Opened {
    directory: DataDirectory,
    engine: Arc<dyn Engine>,
    wal: Wal,
    recovery: Recovery,
    budget: MemtableBudget,
}

impl Node {
    /// Starts a node: recovers its data, listens, and begins to register. Returns once it listens; the registration goes
    /// on by itself.
    ///
    /// # Errors
    /// [`NodeError`] if anything but the registration fails; what was started is ended again.
    pub async fn start(config: NodeConfig) -> Result<Self, NodeError> {
        let listen = config.check()?;
        let opening = config.clone();
        let opened = tokio::task::spawn_blocking(move || open(&opening)).await;
        let opened = opened.map_err(|_| NodeError::Failed)??;
        let listening = |source| NodeError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        if let Err(error) = archon_proto::listen::bound_segments(&listener) {
            tracing::warn!(%error, "connections may stand still for a moment over loopback: the length of segments cannot be set");
        }
        let metrics_listener = match config.metrics_listen {
            Some(address) => {
                let listening = |source| NodeError::ListenForMetrics { address, source };
                Some(TcpListener::bind(address).await.map_err(listening)?)
            }
            None => None,
        };
        Self::assemble(config, opened, listener, address, metrics_listener)
    }

    fn assemble(
        config: NodeConfig,
        opened: Opened,
        listener: TcpListener,
        address: SocketAddr,
        metrics_listener: Option<TcpListener>,
    ) -> Result<Self, NodeError> {
        let Opened { directory, engine, wal, recovery, budget } = opened;
        let runtime = Handle::current();
        let advertised = config.advertise.clone().unwrap_or_else(|| address.to_string());
        let shards = Shards::new(config.shard_count());
        let shared = Arc::new(Shared::new(config, Arc::new(BootClock), Arc::new(WallClock)));
        let holdings = Arc::new(Holdings::new(recovery.held));
        let flusher = Flusher::start(
            Arc::clone(&engine),
            FlusherConfig::default(),
            {
                let (shards, holdings) = (shards.clone(), Arc::clone(&holdings));
                move |event| route_event(&shards, &holdings, event)
            },
            {
                let shared = Arc::clone(&shared);
                move || shared.fail()
            },
        )?;
        let runtimes = (0..shards.count()).map(|_| ShardRuntime::new()).collect::<Result<Vec<_>, _>>();
        let runtimes = runtimes.map_err(NodeError::Thread)?;
        let handles: Vec<Handle> = runtimes.iter().filter_map(ShardRuntime::handle).collect();
        let peers = Arc::new(Peers::new(Arc::clone(&shared), handles.clone()));
        let forwards = Arc::new(Forwards::new(Arc::clone(&shared), handles.clone()));
        let copies = CopyRunner::new(Arc::clone(&shared), runtime.clone(), shards.clone(), flusher.handle());
        let copies = Arc::new(copies);
        let memtables = budget.clone();
        let (split_searches, split_searches_asked) = SplitSearches::new();
        let context = Arc::new(Context {
            shared: Arc::clone(&shared),
            wal: wal.clone(),
            engine: Arc::clone(&engine),
            flusher: flusher.handle(),
            holdings: Arc::clone(&holdings),
            peers: Arc::clone(&peers),
            forwards: Arc::clone(&forwards),
            copies: Arc::clone(&copies),
            split_searches,
            shards: shards.clone(),
            budget,
            dedup: DedupLimits::default(),
        });
        let pulses: Vec<Arc<Pulse>> = (0..shards.count()).map(|_| Arc::default()).collect();
        let threads = shards.start(&context, &pulses, recovery.found, runtimes).map_err(NodeError::Thread)?;
        let health = Arc::new(Health::new(Arc::clone(&shared.clock), pulses, wal.clone(), flusher.handle()));
        let readiness = Readiness::new(Arc::clone(&shared), Arc::clone(&health));
        let stats = Stats::new(Arc::clone(&shared), wal.clone(), flusher.handle(), memtables, readiness);
        let open = |listener| MetricsServer::open(listener, Arc::new(stats.clone()));
        let metrics_server = metrics_listener.map(open).transpose();
        let metrics_server = metrics_server.map_err(|source| NodeError::ListenForMetrics { address, source })?;
        let services_end = CancellationToken::new();
        let service_tasks = TaskTracker::new();
        let services = Services {
            shared: Arc::clone(&shared),
            shards: shards.clone(),
            engine: Arc::clone(&engine),
            holdings: Arc::clone(&holdings),
            stats: stats.clone(),
            end: services_end.clone(),
            tasks: service_tasks.clone(),
        };
        let size_scan = runtime.spawn(crate::size_scan::count(
            Arc::clone(&shared),
            Arc::clone(&engine),
            Arc::clone(&holdings),
            shards.clone(),
            services_end.clone(),
        ));
        let split_search = runtime.spawn(crate::split_search::run(
            Arc::clone(&engine),
            shards.clone(),
            split_searches_asked,
            services_end.clone(),
        ));
        let server = runtime.spawn(serve(listener, services, handles));
        let directory = Arc::new(Mutex::new(directory));
        let released = Arc::new(AtomicBool::new(false));
        let session_end = CancellationToken::new();
        let session = Session {
            shared: Arc::clone(&shared),
            health,
            home: Box::new(DirectoryHome { directory: Arc::clone(&directory), holdings }),
            renew: Box::new({
                let shards = shards.clone();
                move |incarnation| {
                    let shards = shards.clone();
                    Box::pin(async move { shards.renew(incarnation).await })
                }
            }),
            withdraw: Box::new({
                let shards = shards.clone();
                move |leaderships| shards.withdraw(leaderships)
            }),
            retime: Box::new({
                let shards = shards.clone();
                move || shards.send_all(|| ShardMessage::Peers)
            }),
            address: advertised,
            end: session_end.clone(),
            released: Arc::clone(&released),
        };
        let ended = CancellationToken::new();
        let session = start_session(session, ended.clone()).map_err(NodeError::Thread)?;
        tracing::info!(%address, name = %shared.config.name, shards = shards.count(), "node listens");
        Ok(Self {
            address,
            shared,
            shards,
            stats,
            metrics_server,
            flusher: Some(flusher),
            threads,
            peers,
            forwards,
            copies,
            wal,
            engine,
            released,
            session_end,
            session,
            ended,
            services_end,
            service_tasks,
            size_scan,
            split_search,
            server,
            directory,
        })
    }

    /// The address bound.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The node's metrics now.
    pub fn metrics(&self) -> Vec<Family> {
        self.stats.families()
    }

    /// Returns when the node cannot go on by itself: the coordinator refused it, or a part failed.
    pub async fn ended(&self) {
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = self.shared.failed().cancelled() => {}
        }
    }

    /// Stops in order: refuse new work, hand over what is led, say farewell, answer what is under way, flush, close the
    /// log. Each step has a deadline.
    ///
    /// # Errors
    /// Why the node had ended by itself, or what could not be ended in order; nothing acknowledged is lost either way.
    pub async fn stop(mut self) -> Result<(), NodeError> {
        let failed = self.shared.failed().is_cancelled();
        if !failed && !self.ended.is_cancelled() {
            self.hand_over().await;
        }
        self.shared.stop();
        self.session_end.cancel();
        let session = tokio::time::timeout(SERVER_DEADLINE, &mut self.session).await;
        self.shared.end_life();
        self.services_end.cancel();
        // Calls wait for what it brings back. Its tasks are on the shards' threads, one of which may be stuck.
        if tokio::time::timeout(SERVER_DEADLINE, self.forwards.stop()).await.is_err() {
            tracing::warn!("streams to leaders have not ended in time");
        }
        let server = tokio::time::timeout(SERVER_DEADLINE, &mut self.server).await;
        if server.is_err() {
            self.server.abort();
        }
        self.service_tasks.close();
        if tokio::time::timeout(SERVER_DEADLINE, self.service_tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.service_tasks.len(), "streams of peers have not ended in time");
        }
        self.copies.stop_all().await;
        // Cancelled with the services; a page under way ends by itself.
        let _ = tokio::time::timeout(SERVER_DEADLINE, &mut self.size_scan).await;
        let _ = tokio::time::timeout(SERVER_DEADLINE, &mut self.split_search).await;
        let (flusher, threads, wal, shards) =
            (self.flusher.take(), std::mem::take(&mut self.threads), self.wal.clone(), self.shards.clone());
        let closed = tokio::task::spawn_blocking(move || {
            // Before the shards, which note in the log how far it came.
            let flushed = flusher.map_or(Ok(()), |flusher| flusher.shutdown(FLUSHER_DEADLINE));
            end_shards(&shards, threads);
            let closed = wal.close(WAL_DEADLINE);
            flushed.map_err(NodeError::from).and(closed.map_err(NodeError::from))
        });
        let closed = closed.await.unwrap_or(Err(NodeError::Failed));
        // Their tasks are on the shards' threads, one of which may be stuck.
        if tokio::time::timeout(SERVER_DEADLINE, self.peers.stop()).await.is_err() {
            tracing::warn!("streams to peers have not ended in time");
        }
        if let Some(metrics_server) = self.metrics_server.take() {
            metrics_server.close().await;
        }
        drop(self.engine);
        drop(self.directory);
        if failed {
            return Err(NodeError::Failed);
        }
        if let Ok(Ok(Err(error))) = session {
            return Err(Box::new(error).into());
        }
        if let Ok(Ok(Err(error))) = server {
            return Err(NodeError::Server(error.to_string()));
        }
        closed
    }

    /// Gives up every leadership, waits until the coordinator knows, and then until nobody counts on this node's copies
    /// any more: a leader that still counted them would wait for them in vain.
    async fn hand_over(&self) {
        self.shared.leaving().cancel();
        // Heard of first, or the coordinator would grant this node what it has just released.
        let _ = tokio::time::timeout(LEAVING_HEARD_DEADLINE, self.shared.leaving_heard().cancelled()).await;
        self.shards.send_all(|| ShardMessage::Release);
        let done = async {
            while self.shards.leading().await > 0 || !self.shared.reports.is_empty() {
                tokio::time::sleep(RELEASE_POLL).await;
            }
            let uncounted = async {
                while self.shards.counted().await > 0 {
                    tokio::time::sleep(RELEASE_POLL).await;
                }
            };
            if tokio::time::timeout(UNCOUNTED_DEADLINE, uncounted).await.is_err() {
                tracing::info!("copies of this node still count; their leaders go on without them in a moment");
            }
        };
        let gone = async {
            while !self.quorum_is_gone() {
                tokio::time::sleep(RELEASE_POLL).await;
            }
        };
        tokio::select! {
            handed = tokio::time::timeout(self.shared.config.hand_over_timeout, done) => match handed {
                Ok(()) => self.released.store(true, Ordering::Release),
                Err(_) => tracing::warn!("not everything could be handed over in time; it comes back with this node"),
            },
            () = gone => tracing::warn!("no coordinator takes the leaderships; they come back with this node"),
        }
    }

    /// No heartbeat was answered for a lease and a while: longer than the coordinators take to elect, so probably they are
    /// being stopped as well, and there is nobody to hand anything to.
    fn quorum_is_gone(&self) -> bool {
        let until = self.shared.life().and_then(|life| life.grants.until());
        until.is_none_or(|until| self.shared.clock.now() >= until.plus(QUORUM_TIMEOUT_MS))
    }
}

fn open(config: &NodeConfig) -> Result<Opened, NodeError> {
    let directory = DataDirectory::open(&config.data_dir, &config.name, None)?;
    let engine_config = EngineConfig { kind: config.engine, ..EngineConfig::default() };
    let (engine, aside) = open_or_quarantine(&directory.engine_directory(), &engine_config)?;
    let wal_config = WalConfig { segment_bytes: config.wal_segment_bytes, ..WalConfig::default() };
    let (wal, recovered) = Wal::open(&directory.wal_directory(), wal_config)?;
    if recovered.torn_bytes_cut > 0 {
        tracing::info!(bytes = recovered.torn_bytes_cut, "cut the torn end of the write-ahead log");
    }
    for damage in &recovered.damaged {
        tracing::error!(?damage, "the write-ahead log is damaged");
    }
    let budget = MemtableBudget::default();
    let recovery = recover(&wal, &recovered, &*engine, aside.is_some(), &budget)?;
    tracing::info!(placements = recovery.held.len(), usable = recovery.found.len(), "recovered");
    Ok(Opened { directory, engine, wal, recovery, budget })
}

/// Brings what the flusher tells to the shard that owns the placement.
fn route_event(shards: &Shards, holdings: &Holdings, event: FlushEvent) {
    match event {
        FlushEvent::Written { space, .. }
        | FlushEvent::Synced { space, .. }
        | FlushEvent::Damaged { space, .. }
        | FlushEvent::Cleared { space, .. } => {
            if let Some(partition) = holdings.partition_of(space) {
                shards.of(partition).complete(ShardMessage::Flushed(event));
            }
        }
        FlushEvent::QueueDrained => shards.send_all(|| ShardMessage::Flushed(FlushEvent::QueueDrained)),
        // It is not held before it is formed, so that nobody knows its shard.
        FlushEvent::Spoilt { space, attempt } => {
            shards.send_all(|| ShardMessage::Flushed(FlushEvent::Spoilt { space, attempt }));
        }
        FlushEvent::RowsFormed { space, attempt } => {
            shards.send_all(|| ShardMessage::Flushed(FlushEvent::RowsFormed { space, attempt }));
        }
        FlushEvent::Formed { space, attempt } => {
            shards.send_all(|| ShardMessage::Flushed(FlushEvent::Formed { space, attempt }));
        }
        FlushEvent::Failed(error) => {
            shards.send_all(|| ShardMessage::Flushed(FlushEvent::Failed(Arc::clone(&error))));
        }
    }
}

fn start_session(
    session: Session,
    ended: CancellationToken,
) -> std::io::Result<oneshot::Receiver<Result<(), SessionError>>> {
    let (sender, receiver) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("session".into()).spawn(move || {
        // Also on a panic: a node without a session has no lease and should not linger.
        let _ended = ended.drop_guard();
        let end = runtime.block_on(session.run());
        // Nobody listens if the node was dropped.
        let _ = sender.send(end);
    })?;
    Ok(receiver)
}

/// Ends the shard threads; one that does not end in time is left to itself.
fn end_shards(shards: &Shards, threads: Vec<JoinHandle<()>>) {
    for number in 0..shards.count() {
        if let Some(inbox) = shards.inbox(number) {
            inbox.close();
        }
    }
    shards.send_all(|| ShardMessage::Stop);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for thread in threads {
            // A panic was noticed when it happened.
            let _ = thread.join();
        }
        let _ = sender.send(());
    });
    if receiver.recv_timeout(SHARDS_DEADLINE).is_err() {
        tracing::warn!("a shard did not end in time");
    }
}
