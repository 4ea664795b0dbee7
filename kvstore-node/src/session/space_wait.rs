//! Reports of a process that waits for disk space before its node can start: the coordinators name it to people. They
//! register nothing, so no lease, no replica and no vote depends on them.

use crate::engine::{RESERVE_BYTES, disk_full};
use crate::node::config::NodeConfig;
use crate::node::identity;
use crate::session::peer_cache::PeerCache;
use archon_proto::convert::ids::uuid_bytes;
use archon_proto::v1;
use archon_proto::v1::session_client::SessionClient;
use archon_session::Coordinators;
use std::time::{Duration, Instant};
use tonic::Request;
use tonic::transport::Channel;

/// Longest wait for the coordinators' answer.
const DEADLINE: Duration = Duration::from_secs(1);

/// A wait for disk space.
pub(crate) struct SpaceWait {
    began: Instant,
    coordinators: Coordinators,
}

impl SpaceWait {
    /// Begins a wait.
    pub(crate) fn new(config: &NodeConfig) -> Self {
        let known = PeerCache::read(&config.data_dir).first_asked(&config.coordinators);
        let coordinators =
            Coordinators::new(config.coordinators.clone(), config.transport.clone(), move || known.clone());
        Self { began: Instant::now(), coordinators }
    }

    /// Reports the wait to the leading coordinator, if a cluster knows this data directory.
    pub(crate) async fn report(&self, config: &NodeConfig) {
        // Without its lock: the file is only read, and a directory of another process cannot be opened anyway.
        let directory = config.data_dir.clone();
        let read = tokio::task::spawn_blocking(move || identity::read(&directory)).await;
        let Ok(Ok(Some(identity))) = read else { return };
        if identity.cluster_id.is_nil() || identity.name != config.name {
            return;
        }
        let lack = disk_full(&config.data_dir, config.wal_segment_bytes.saturating_add(RESERVE_BYTES));
        let request = v1::WaitForSpaceRequest {
            cluster: Some(identity.cluster_id.into()),
            name: identity.name,
            storage_id: uuid_bytes(identity.storage_id.get()),
            disk_full: Some(lack.into()),
            waited_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let call = async |mut client: SessionClient<Channel>, request: Request<v1::WaitForSpaceRequest>| {
            client.wait_for_space(request).await
        };
        if let Err(detail) = self.coordinators.call(DEADLINE, request, call).await {
            // Coordinators of an earlier version do not know the call.
            tracing::debug!(%detail, "the coordinators do not know that this node waits for disk space");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::identity::DataDirectory;
    use archon_proto::v1::session_server::{Session, SessionServer};
    use archon_types::{ClusterId, GenerationKey, Incarnation, NodeId};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use tokio::net::TcpListener;
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{Response, Status};
    use uuid::Uuid;

    /// A coordinator that only takes reports of waits.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<v1::WaitForSpaceRequest>>>);

    fn unexpected<T>() -> Result<T, Status> {
        Err(Status::unimplemented("a process that waits registers nothing"))
    }

    #[tonic::async_trait]
    impl Session for Recorder {
        async fn register(&self, _: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterResponse>, Status> {
            unexpected()
        }

        async fn report(&self, _: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
            unexpected()
        }

        async fn duties(&self, _: Request<v1::DutiesRequest>) -> Result<Response<v1::DutiesResponse>, Status> {
            unexpected()
        }

        async fn revocations(
            &self,
            _: Request<v1::RevocationsRequest>,
        ) -> Result<Response<v1::RevocationsResponse>, Status> {
            unexpected()
        }

        async fn leave(&self, _: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
            unexpected()
        }

        async fn wait_for_space(
            &self,
            request: Request<v1::WaitForSpaceRequest>,
        ) -> Result<Response<v1::WaitForSpaceResponse>, Status> {
            self.0.lock().push(request.into_inner());
            Ok(Response::new(v1::WaitForSpaceResponse {}))
        }
    }

    #[tokio::test]
    async fn wait_is_reported_once_the_directory_has_a_cluster() {
        let (recorder, listener) = (Recorder::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap().to_string();
        let server = tonic::transport::Server::builder().add_service(SessionServer::new(recorder.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("athens");
        let config = NodeConfig::new("athens", "127.0.0.1:0", vec![address], data.clone());
        // No cluster knows a directory without an identity, or one that was never registered.
        SpaceWait::new(&config).report(&config).await;
        let mut opened = DataDirectory::open(&data, "athens", config.speaks, None).unwrap();
        SpaceWait::new(&config).report(&config).await;
        assert_eq!(recorder.0.lock().len(), 0);
        let cluster = ClusterId::new(Uuid::from_u128(7));
        let life = (Incarnation::new(3), GenerationKey::NIL);
        opened.record_registration(cluster, NodeId::new(1), life).unwrap();
        let storage = opened.identity().storage_id;
        SpaceWait::new(&config).report(&config).await;
        let reports = recorder.0.lock().clone();
        let [report] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((report.name.as_str(), &report.cluster), ("athens", &Some(cluster.into())));
        assert_eq!(report.storage_id, uuid_bytes(storage.get()));
        assert!(report.disk_full.is_some_and(|lack| lack.needed_bytes > config.wal_segment_bytes));
    }
}
