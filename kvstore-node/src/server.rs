//! The gRPC server: every service of a node, with health and reflection.

use crate::engine::Engine;
use crate::holdings::Holdings;
use crate::service::control::ControlService;
use crate::service::kv::KvService;
use crate::service::replication::ReplicationService;
use crate::service::stats::StatsService;
use crate::service::table::TableService;
use crate::shard::Shards;
use crate::shared::Shared;
use crate::stats::Stats;
use archon_proto::v1;
use archon_types::limits::MESSAGE_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::server::TcpIncoming;

const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// What the gRPC services need.
pub(crate) struct Services {
    pub(crate) shared: Arc<Shared>,
    pub(crate) shards: Shards,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) stats: Stats,
    pub(crate) end: CancellationToken,
    /// Owns what services start beside their calls.
    pub(crate) tasks: TaskTracker,
}

/// Serves until told to end.
pub(crate) async fn serve(listener: TcpListener, services: Services) -> Result<(), tonic::transport::Error> {
    let Services { shared, shards, engine, holdings, stats, end, tasks } = services;
    let kv = KvService {
        shared: Arc::clone(&shared),
        shards: shards.clone(),
        stop: end.clone(),
        connections: Arc::new(AtomicU64::new(0)),
    };
    let replication =
        ReplicationService { shared: Arc::clone(&shared), shards: shards.clone(), engine, stop: end.clone(), tasks };
    let control = ControlService::new(Arc::clone(&shared), holdings, shards);
    let table = TableService { shared, stop: end.clone() };
    let (health_reporter, health) = tonic_health::server::health_reporter();
    health_reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    health_reporter.set_serving::<v1::kv_server::KvServer<KvService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(archon_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    let mut server = tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(Duration::from_secs(5)));
    let mut router = server
        .add_service(health)
        .add_service(v1::kv_server::KvServer::new(kv).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(
            v1::replication_server::ReplicationServer::new(replication)
                .max_decoding_message_size(2 * MESSAGE_BYTES_MAX),
        )
        .add_service(v1::control_server::ControlServer::new(control).max_decoding_message_size(8 * MESSAGE_BYTES_MAX))
        .add_service(v1::table_server::TableServer::new(table))
        .add_service(v1::stats_server::StatsServer::new(StatsService(stats)));
    match reflection {
        Ok(reflection) => router = router.add_service(reflection),
        Err(error) => tracing::warn!(%error, "no gRPC reflection"),
    }
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    router.serve_with_incoming_shutdown(incoming, end.cancelled_owned()).await
}
