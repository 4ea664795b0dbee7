//! Server on a node's port: frame streams, and everything else as gRPC with health and reflection, both on the threads
//! of the shards.

pub(crate) mod acceptor;
pub(crate) mod access;
pub(crate) mod admit;
pub(crate) mod demux;
mod find_table;
pub(crate) mod health;
pub(crate) mod ping;
pub(crate) mod readiness;
pub(crate) mod table_lookup;

use crate::engine::Engine;
use crate::node::config::RedisConfig;
use crate::node::state::NodeState;
use crate::server::acceptor::{Acceptor, IncomingConnection};
use crate::server::demux::{Streams, demultiplex};
use crate::server::readiness::Readiness;
use crate::service::carrier::CarrierService;
use crate::service::control::ControlService;
use crate::service::kv::KvService;
use crate::service::redis::RedisService;
use crate::service::replication::ReplicationService;
use crate::service::stats::StatsService;
use crate::service::table::TableService;
use crate::session::holdings::Holdings;
use crate::shard::Shards;
use crate::statistics::metrics::Metrics;
use crate::statistics::stats::Stats;
use archon_frames::{BoundedResponses, GrpcServer, GrpcSettings, IncomingConnections, PartialBodies, PartialBudget};
use archon_proto::authority::Authority;
use archon_proto::health::MemberHealth;
use archon_proto::v1;
use archon_security::UnreadBudget;
use archon_types::limits::{MESSAGE_BYTES_MAX, PUSH_BYTES_MAX};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

const SETTINGS: GrpcSettings = GrpcSettings {
    keepalive_interval: Duration::from_secs(5),
    keepalive_timeout: Duration::from_secs(20),
    stream_window_bytes: Some(2 * 1024 * 1024),
    connection_window_bytes: Some(16 * 1024 * 1024),
};
/// Prefix of the calls that other members make.
const MEMBERS_CALL: &str = "/archon.v1.Control/";

/// Dependencies of the services.
pub(crate) struct Services {
    pub(crate) shared: Arc<NodeState>,
    pub(crate) shards: Shards,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) stats: Stats,
    pub(crate) end: CancellationToken,
    /// Owns streams, and tasks that services start; the node awaits them when it stops.
    pub(crate) tasks: TaskTracker,
    pub(crate) redis: Option<RedisListener>,
}

/// The listener for Redis clients.
pub(crate) struct RedisListener {
    pub(crate) listener: TcpListener,
    pub(crate) redis: RedisConfig,
    /// Its address for clients.
    pub(crate) advertised: String,
}

/// Connections accepted and not yet taken by the thread that will serve them.
const ACCEPTED_MAX: usize = 64;

/// Serves until cancelled. Each connection is served on one of `runtimes`, in turn.
pub(crate) async fn serve(
    listener: TcpListener,
    mut services: Services,
    runtimes: Vec<Handle>,
) -> Result<(), tonic::transport::Error> {
    let end = services.end.clone();
    let shared = Arc::clone(&services.shared);
    let streams = streams(&services);
    // Unread responses to clients count together, in either protocol.
    let unread = || UnreadBudget::new(shared.memory.partial_bytes);
    let unread_of_clients = unread();
    if let Some(RedisListener { listener, redis, advertised }) = services.redis.take() {
        let (kv, partial) = (streams.kv.clone(), streams.partial_of_clients.clone());
        let service = RedisService::new(kv, redis, &advertised, partial, unread_of_clients.clone());
        services.tasks.spawn(service.serve(listener, runtimes.clone()));
    }
    let routes = routes(services, &streams);
    // Incomplete messages of clients count together, however they arrive. Replication has a budget that unknown callers
    // cannot use.
    let pushes = PartialBudget::new(shared.memory.partial_bytes);
    let partial = PartialBodies::new(streams.partial_of_clients.clone(), pushes, MEMBERS_CALL);
    let responses = BoundedResponses::new(unread_of_clients, unread(), MEMBERS_CALL);
    let mut servers = JoinSet::new();
    let mut ways = Vec::new();
    for runtime in &runtimes {
        let (way, accepted) = mpsc::channel(ACCEPTED_MAX);
        let (grpc, incoming) = mpsc::channel(ACCEPTED_MAX);
        ways.push(way);
        runtime.spawn(demultiplex(accepted, streams.clone(), grpc));
        let server = GrpcServer {
            settings: SETTINGS,
            routes: routes.clone(),
            responses: responses.clone(),
            authority: Authority::of_node(&shared.config.transport),
            partial: partial.clone(),
        };
        servers.spawn_on(server.serve(incoming, end.clone()), runtime);
    }
    let incoming =
        IncomingConnections::new(listener, Arc::clone(&shared.connection_limit), shared.config.transport.clone());
    tokio::select! {
        () = accept(incoming, &shared.metrics, ways) => {}
        () = end.cancelled() => {}
    }
    while let Some(ended) = servers.join_next().await {
        // A server cut off with its runtime returns no result.
        ended.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// Accepts connections and gives them to the threads in turn, until a thread accepts no more.
async fn accept(incoming: IncomingConnections, metrics: &Metrics, ways: Vec<mpsc::Sender<IncomingConnection>>) {
    let mut acceptor = Acceptor::new(incoming, &metrics.accept_errors, "connections");
    for way in ways.iter().cycle() {
        if way.send(acceptor.next().await).await.is_err() {
            return;
        }
    }
}

/// Returns the health service: load balancers get the same answer as probes.
fn health(readiness: Readiness, end: &CancellationToken) -> MemberHealth {
    let end = end.clone();
    MemberHealth::new(&["archon.v1.Kv"], move || readiness.check().is_ok(), move || end.clone().cancelled_owned())
}

fn streams(services: &Services) -> Streams {
    let Services { shared, shards, engine, end, tasks, .. } = services;
    let kv = KvService {
        shared: Arc::clone(shared),
        shards: shards.clone(),
        stop: end.clone(),
        connections: Arc::new(AtomicU64::new(0)),
        engine: Arc::clone(engine),
        tasks: tasks.clone(),
    };
    let replication = ReplicationService {
        membership: Arc::clone(&shared.membership),
        tables: Arc::clone(&shared.tables),
        copy_rest: Arc::clone(&shared.copy_rest),
        load: Arc::clone(&shared.load),
        metrics: Arc::clone(&shared.metrics),
        shards: shards.clone(),
        engine: Arc::clone(engine),
        stop: end.clone(),
        tasks: tasks.clone(),
    };
    Streams {
        kv,
        replication,
        partial_of_clients: PartialBudget::new(shared.memory.partial_bytes),
        partial_of_peers: PartialBudget::new(shared.memory.partial_bytes),
        tasks: tasks.clone(),
    }
}

fn routes(services: Services, streams: &Streams) -> Routes {
    let Services { shared, shards, holdings, stats, end, .. } = services;
    let Streams { kv, replication, .. } = streams.clone();
    let control = ControlService::new(Arc::clone(&shared), holdings, shards);
    let health = health(stats.readiness.clone(), &end);
    let (membership, tables) = (Arc::clone(&shared.membership), Arc::clone(&shared.tables));
    let carrier = CarrierService::new(&shared.config, membership, tables, Arc::clone(&shared.metrics));
    let table = TableService { shared, stop: end };
    let routes = Routes::new(health.into_service())
        .add_service(v1::kv_server::KvServer::new(kv).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(v1::replication_server::ReplicationServer::new(replication))
        .add_service(v1::control_server::ControlServer::new(control).max_decoding_message_size(PUSH_BYTES_MAX))
        .add_service(v1::carrier_server::CarrierServer::new(carrier).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(v1::table_server::TableServer::new(table))
        .add_service(v1::stats_server::StatsServer::new(StatsService(stats)));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(archon_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    match reflection {
        Ok(reflection) => routes.add_service(reflection),
        Err(error) => {
            tracing::warn!(%error, "no gRPC reflection");
            routes
        }
    }
}
