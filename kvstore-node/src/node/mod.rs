//! Life cycle of a node: start order; [`stop`] has the stop order with its deadlines.

pub(crate) mod clock;
pub(crate) mod config;
mod deadlines;
mod error;
pub(crate) mod grants;
mod home;
pub(crate) mod identity;
pub(crate) mod lifecycle;
pub(crate) mod membership;
pub(crate) mod memory;
mod recover;
pub(crate) mod state;
mod stop;

pub use error::NodeError;

use crate::copies::copy::{CopyHandles, CopyRunner};
use crate::engine::{Engine, EngineConfig, disk_bytes, open_or_quarantine};
use crate::flusher::{FlushEvent, Flusher, FlusherConfig};
use crate::forward::Forwards;
use crate::node::clock::WallClock;
use crate::node::config::NodeConfig;
use crate::node::home::DirectoryHome;
use crate::node::identity::DataDirectory;
use crate::node::memory::MemoryParts;
use crate::node::recover::{Recovery, recover};
use crate::node::state::NodeState;
use crate::peers::peer::Peers;
use crate::ranges::split_search::SplitSearches;
use crate::server::health::{Health, Pulse};
use crate::server::readiness::Readiness;
use crate::server::{RedisListener, Services, serve};
use crate::session::holdings::Holdings;
use crate::session::{Session, SessionError};
use crate::shard::{self, Context, ShardMessage, ShardRuntime, Shards};
use crate::statistics::stats::Stats;
use archon_kv::{DedupLimits, MemtableBudget};
use archon_session::BootClock;
use archon_telemetry::{AskReady, Family, MetricsServer, Source as _};
use archon_wal::{Wal, WalConfig};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A running node. Dropping it without [`Node::stop`] leaves threads behind until the process ends.
pub struct Node {
    address: SocketAddr,
    shared: Arc<NodeState>,
    shards: Shards,
    stats: Stats,
    /// Serves metrics and health, also while everything else stops.
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
    /// The data directory; its lock is held until everything else has ended.
    directory: Arc<Mutex<DataDirectory>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Resources opened from the data directory.
struct NodeResources {
    directory: DataDirectory,
    engine: Arc<dyn Engine>,
    wal: Wal,
    recovery: Recovery,
    memory: MemoryParts,
    budget: MemtableBudget,
    /// Size of the disk of the data directory.
    disk_bytes: u64,
}

impl Node {
    /// Starts a node: recovers its data, listens, and begins to register. Returns once it listens; registration
    /// continues in the background.
    ///
    /// # Errors
    /// [`NodeError`] if anything except the registration fails; parts already started are ended again.
    pub async fn start(config: NodeConfig) -> Result<Self, NodeError> {
        let listen = config.check()?;
        let opening = config.clone();
        let opened = tokio::task::spawn_blocking(move || open(&opening)).await;
        let opened = opened.map_err(|_| NodeError::Failed)??;
        let listening = |source| NodeError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        if let Err(error) = archon_proto::listen::bound_segments(&listener) {
            tracing::warn!(%error, "connections over loopback may stall briefly: the segment length cannot be set");
        }
        let metrics_listener = match config.metrics_listen {
            Some(address) => {
                let listening = |source| NodeError::ListenForMetrics { address, source };
                Some(TcpListener::bind(address).await.map_err(listening)?)
            }
            None => None,
        };
        let redis_listener = match config.redis.as_ref().map(|redis| redis.listen) {
            Some(address) => {
                let listening = |source| NodeError::ListenForRedis { address, source };
                let listener = TcpListener::bind(address).await.map_err(listening)?;
                let address = listener.local_addr().map_err(listening)?;
                Some((listener, address))
            }
            None => None,
        };
        Self::assemble(config, opened, (listener, address), metrics_listener, redis_listener)
    }

    fn assemble(
        config: NodeConfig,
        opened: NodeResources,
        (listener, address): (TcpListener, SocketAddr),
        metrics_listener: Option<TcpListener>,
        redis_listener: Option<(TcpListener, SocketAddr)>,
    ) -> Result<Self, NodeError> {
        let NodeResources { directory, engine, wal, recovery, memory, budget, disk_bytes } = opened;
        let runtime = Handle::current();
        let advertised = config.advertise.clone().unwrap_or_else(|| address.to_string());
        let redis = config.redis.clone().zip(redis_listener).map(|(redis, (listener, address))| {
            let advertised = redis.advertise.clone().unwrap_or_else(|| address.to_string());
            RedisListener { listener, redis, advertised }
        });
        let redis_advertised = redis.as_ref().map(|redis| redis.advertised.clone());
        let shards = Shards::new(config.shard_count());
        let shared = Arc::new(NodeState::new(config, memory, Arc::new(BootClock), Arc::new(WallClock)));
        let holdings = Arc::new(Holdings::new(recovery.held));
        let flusher = Flusher::start(
            Arc::clone(&engine),
            FlusherConfig::of(&*engine),
            {
                let (shards, holdings) = (shards.clone(), Arc::clone(&holdings));
                move |event| route_event(&shards, &holdings, event)
            },
            {
                let shared = Arc::clone(&shared);
                move || shared.lifecycle.fail()
            },
        )?;
        let runtimes = (0..shards.count()).map(|_| ShardRuntime::new()).collect::<Result<Vec<_>, _>>();
        let runtimes = runtimes.map_err(NodeError::Thread)?;
        let handles: Vec<Handle> = runtimes.iter().filter_map(ShardRuntime::handle).collect();
        let peers = Arc::new(Peers::new(
            Arc::clone(&shared.membership),
            Arc::clone(&shared.tables),
            Arc::clone(&shared.metrics),
            shared.config.transport.clone(),
            handles.clone(),
        ));
        let forwards = Arc::new(Forwards::new(Arc::clone(&shared), handles.clone()));
        let copies = CopyRunner::new(CopyHandles::of(&shared), runtime.clone(), shards.clone(), flusher.handle());
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
            row_cache_bytes: memory.row_cache_bytes,
            disk_bytes,
            dedup: DedupLimits::default(),
        });
        let pulses: Vec<Arc<Pulse>> = (0..shards.count()).map(|_| Arc::default()).collect();
        let threads = shard::start(&shards, &context, &pulses, recovery.found, runtimes).map_err(NodeError::Thread)?;
        let health = Arc::new(Health::new(
            Arc::clone(&shared.config),
            Arc::clone(&shared.clock),
            Arc::clone(&shared.load),
            pulses,
            wal.clone(),
            flusher.handle(),
            disk_bytes,
        ));
        let readiness = Readiness::new(
            Arc::clone(&shared.config),
            Arc::clone(&shared.clock),
            Arc::clone(&shared.membership),
            Arc::clone(&shared.lifecycle),
            Arc::clone(&health),
        );
        let stats =
            Stats::new(Arc::clone(&shared), wal.clone(), flusher.handle(), memtables, readiness, Arc::clone(&holdings));
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
            redis,
        };
        let size_scan = runtime.spawn(crate::storage::size_scan::count(
            Arc::clone(&shared.load),
            Arc::clone(&engine),
            Arc::clone(&holdings),
            shards.clone(),
            services_end.clone(),
        ));
        let split_search = runtime.spawn(crate::ranges::split_search::run(
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
                move |life| {
                    let shards = shards.clone();
                    Box::pin(async move { shards.renew(life).await })
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
            tables_changed: Box::new({
                let shards = shards.clone();
                move || shards.send_all(|| ShardMessage::Peers)
            }),
            address: advertised,
            redis: redis_advertised,
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

    /// Returns the bound address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the node's present metrics.
    pub fn metrics(&self) -> Vec<Family> {
        self.stats.families()
    }

    /// Returns a function that returns the node's readiness, as `/readyz` does.
    pub fn ask_ready(&self) -> AskReady {
        let stats = self.stats.clone();
        Box::new(move || stats.ready())
    }

    /// Returns when the node cannot continue: the coordinator refused it, or a part failed.
    pub async fn ended(&self) {
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = self.shared.lifecycle.failed().cancelled() => {}
        }
    }
}

fn open(config: &NodeConfig) -> Result<NodeResources, NodeError> {
    let directory = DataDirectory::open(&config.data_dir, &config.name, config.speaks, None)?;
    let memory = MemoryParts::chosen(config.memory_bytes);
    tracing::info!(
        bytes = memory.total_bytes,
        memtables = memory.memtables_bytes,
        row_cache = memory.row_cache_bytes,
        engine_cache = memory.engine_cache_bytes,
        requests = memory.requests_bytes,
        "memory"
    );
    let engine_config =
        EngineConfig { kind: config.engine, cache_bytes: memory.engine_cache_bytes, ..EngineConfig::default() };
    let (engine, aside) = open_or_quarantine(&directory.engine_directory(), &engine_config)?;
    let disk_bytes = disk_bytes(&config.data_dir);
    let (wal, recovered) = Wal::open(&directory.wal_directory(), wal_config(config.wal_segment_bytes, disk_bytes))?;
    if recovered.torn_bytes_cut > 0 {
        tracing::info!(bytes = recovered.torn_bytes_cut, "cut the torn end of the write-ahead log");
    }
    for damage in &recovered.damaged {
        tracing::error!(?damage, "the write-ahead log is damaged");
    }
    let budget = MemtableBudget::new(usize::try_from(memory.memtables_bytes).unwrap_or(usize::MAX));
    let recovery = recover(&wal, &recovered, &*engine, aside.is_some(), &budget)?;
    tracing::info!(placements = recovery.held.len(), usable = recovery.found.len(), "recovered");
    Ok(NodeResources { directory, engine, wal, recovery, memory, budget, disk_bytes })
}

/// Returns the log settings for a disk of this size: at most a quarter for old records, an eighth for files to be
/// reused.
fn wal_config(segment_bytes: u64, disk_bytes: u64) -> WalConfig {
    let default = WalConfig::default();
    let recycled = usize::try_from(disk_bytes / 8 / segment_bytes).unwrap_or(usize::MAX);
    WalConfig {
        segment_bytes,
        kept_bytes_max: default.kept_bytes_max.min(disk_bytes / 4).max(2 * segment_bytes),
        recycled_segments_max: default.recycled_segments_max.min(recycled),
        ..default
    }
}

/// Passes a flusher event to the shard that owns the placement.
fn route_event(shards: &Shards, holdings: &Holdings, event: FlushEvent) {
    match event {
        FlushEvent::Written { space, .. } | FlushEvent::Synced { space, .. } | FlushEvent::Cleared { space, .. } => {
            if let Some(partition) = holdings.partition_of(space) {
                shards.of(partition).complete(ShardMessage::Flushed(event));
            }
        }
        FlushEvent::QueueDrained => shards.send_all(|| ShardMessage::Flushed(FlushEvent::QueueDrained)),
        FlushEvent::Damaged { space, why } => match holdings.partition_of(space) {
            Some(partition) => shards.of(partition).complete(ShardMessage::Flushed(FlushEvent::Damaged { space, why })),
            // A copy being formed is not held yet; its shard is not known here.
            None => shards.send_all(|| ShardMessage::Flushed(FlushEvent::Damaged { space, why: why.clone() })),
        },
        // It is not held before it is formed, so its shard is not known here.
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
    let runtime = archon_security::build_runtime(&mut tokio::runtime::Builder::new_current_thread())?;
    std::thread::Builder::new().name("session".into()).spawn(move || {
        // Also on a panic: a node without a session has no lease and should not linger.
        let _ended = ended.drop_guard();
        let end = runtime.block_on(session.run());
        // The receiver is gone if the node was dropped.
        let _ = sender.send(end);
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_host::{HeldPlacement, HeldState};
    use archon_types::{PartitionId, PlacementId, TableId};

    #[test]
    fn damage_in_space_without_owner_reaches_all_shards() {
        let shards = Shards::new(3);
        let (held, forming) = (PlacementId::new(1), PlacementId::new(2));
        let partition = PartitionId::new(TableId::new(1), 0);
        let holdings = Holdings::new([(held, HeldPlacement { partition, state: HeldState::SetAside })].into());
        let reached = |space| {
            route_event(&shards, &holdings, FlushEvent::Damaged { space, why: "a row is damaged".to_owned() });
            let drained = (0..shards.count()).filter_map(|number| shards.inbox(number)).map(|inbox| {
                let mut turn = Vec::new();
                inbox.drain(&mut turn);
                turn.len()
            });
            drained.collect::<Vec<_>>()
        };
        assert_eq!(reached(held).iter().sum::<usize>(), 1, "its shard is known");
        assert_eq!(reached(forming), [1, 1, 1], "a copy that is formed is not held yet");
    }
}
