//! A node on the wire.

use super::beats::beat_once;
use super::calls::{channel, request_id};
use super::pushes::ReceivedPushes;
use archon_frames::testing::FakeServer;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::members::beats::LeaseGrant;
use archon_proto::v1;
use archon_proto::v1::control_server::ControlServer;
use archon_proto::v1::session_client::SessionClient;
use archon_types::{ErrorDetail, PROTOCOL_NEWEST};
use tonic::Response;
use tonic::service::Routes;

/// A node as seen by the coordinator: registers, receives pushes, and follows the test.
pub struct FakeNode {
    pub name: String,
    pub address: String,
    pub storage: bytes::Bytes,
    pub boot: bytes::Bytes,
    pub cluster: Option<v1::ClusterRef>,
    pub id: u64,
    pub incarnation: u64,
    pub number: u64,
    pub pushed: ReceivedPushes,
    server: FakeServer,
}

impl FakeNode {
    pub async fn new(name: &str) -> Self {
        let pushed = ReceivedPushes::default();
        let server = FakeServer::of_calls(Routes::new(ControlServer::new(pushed.clone()))).unwrap();
        let address = server.address();
        let (storage, boot) = (request_id(), request_id());
        let name = name.to_owned();
        Self { name, address, storage, boot, cluster: None, id: 0, incarnation: 0, number: 0, pushed, server }
    }

    /// Ends the process: its address is not served any longer.
    pub fn hang_up(&mut self) {
        self.server.end();
    }

    pub fn registration(&self) -> v1::RegisterRequest {
        v1::RegisterRequest {
            cluster: self.cluster.clone(),
            name: self.name.clone(),
            address: self.address.clone(),
            storage_id: self.storage.clone(),
            boot_id: self.boot.clone(),
            weight: 100,
            protocol_min: 1,
            protocol_max: PROTOCOL_NEWEST,
            last_incarnation: self.incarnation,
            expects: self.incarnation,
            ..v1::RegisterRequest::default()
        }
    }

    pub async fn register(&mut self, coordinator: &str) -> Result<(), ErrorDetail> {
        self.pushed.boot.lock().unwrap().clone_from(&self.boot);
        let answer = SessionClient::new(channel(coordinator)).register(self.registration()).await;
        let answer = answer.map_err(|status| detail_of(&status))?.into_inner();
        (self.id, self.incarnation, self.cluster) = (answer.node, answer.incarnation, answer.cluster);
        Ok(())
    }

    pub fn sender(&self) -> Option<v1::Sender> {
        Some(v1::Sender { id: self.id, incarnation: self.incarnation })
    }

    pub async fn heartbeat(&mut self, coordinator: &str) -> Result<LeaseGrant, ErrorDetail> {
        self.heartbeat_saying(coordinator, None).await
    }

    /// Sends a heartbeat with this load.
    pub async fn heartbeat_saying(
        &mut self,
        coordinator: &str,
        load: Option<v1::NodeLoad>,
    ) -> Result<LeaseGrant, ErrorDetail> {
        self.number += 1;
        let table_version = self.pushed.tables.lock().unwrap().complete;
        let beat = v1::Beat {
            node: self.id,
            incarnation: self.incarnation,
            number: self.number,
            table_version,
            stopping: false,
            push_key: self.boot.clone(),
            load,
            ..v1::Beat::default()
        };
        beat_once(coordinator, self.cluster.clone(), beat).await
    }

    /// Returns the duties of the last push.
    pub fn duties(&self) -> Vec<v1::Duty> {
        self.pushed.last.lock().unwrap().as_ref().map(|push| push.duties.clone()).unwrap_or_default()
    }

    /// Reports every partition that this node should lead as served.
    pub async fn report_online(&self, coordinator: &str) -> Result<v1::ReportResponse, ErrorDetail> {
        let reports = self.duties().into_iter().filter_map(|duty| match duty.duty? {
            v1::duty::Duty::Host(host) => {
                let row = host.partition?;
                (row.leader == Some(host.placement)).then_some(v1::ReplicaReport {
                    partition: row.id,
                    placement: host.placement,
                    epoch: row.epoch,
                    version: row.version,
                    fact: Some(v1::replica_report::Fact::Online(v1::FactOnline {})),
                })
            }
            _ => None,
        });
        let request = v1::ReportRequest {
            cluster: self.cluster.clone(),
            sender: self.sender(),
            reports: reports.collect(),
            ..v1::ReportRequest::default()
        };
        let answer = SessionClient::new(channel(coordinator)).report(request).await;
        answer.map(Response::into_inner).map_err(|status| detail_of(&status))
    }
}
