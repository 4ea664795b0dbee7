//! etcd: three members.

use crate::ComparedSystem;
use crate::system::{RunOutcome, System, drive, now, program, until, version};
use anyhow::Context;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Process, spawn};
use archon_load::{Connector, Failure, Mix, ScanResult, Store, Workload};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

const MEMBERS: usize = 3;
/// Maximum number of connections: more do not make it faster here, fewer make it slower.
const CHANNELS_MAX: usize = 12;

// The used parts of etcd's rpc.proto (v3.4, package etcdserverpb); omitted fields are skipped.
#[derive(Clone, PartialEq, prost::Message)]
struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    /// End of the range, exclusive; empty: `key` alone.
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
    #[prost(int64, tag = "3")]
    limit: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

/// An etcd cluster as clients see it.
#[derive(Debug)]
pub(crate) struct Etcd {
    leader: String,
}

struct EtcdSystem {
    target: Arc<Etcd>,
    members: Vec<Process>,
}

/// Starts the members; `None` if etcd is not installed.
pub(crate) fn start(directory: &Path) -> anyhow::Result<ComparedSystem> {
    let Some(etcd) = program("etcd") else { return Ok(None) };
    let addresses = free_addresses(2 * MEMBERS);
    let (clients, peers) = addresses.split_at(MEMBERS);
    let cluster: Vec<String> = peers.iter().enumerate().map(|(i, peer)| format!("etcd-{i}=http://{peer}")).collect();
    let mut members = Vec::new();
    for (number, (client, peer)) in clients.iter().zip(peers).enumerate() {
        let name = format!("etcd-{number}");
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let settings = [
            ("--name", name.clone()),
            ("--data-dir", directory.join(&name).display().to_string()),
            ("--listen-client-urls", client.clone()),
            ("--advertise-client-urls", client),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer),
            ("--initial-cluster", cluster.join(",")),
            ("--initial-cluster-state", "new".into()),
            ("--log-level", "warn".into()),
        ];
        let arguments: Vec<String> = settings.into_iter().flat_map(|(key, value)| [key.to_owned(), value]).collect();
        members.push(spawn(&etcd, &name, &arguments, directory));
    }
    let leader = until("etcd to have a leader", || {
        for client in clients {
            let status = now(async {
                let channel = channel(client).await?;
                let path = "/etcdserverpb.Maintenance/Status";
                let status: StatusResponse = call(&channel, path, StatusRequest {}).await?;
                Ok(status)
            })?;
            if status.header.is_some_and(|header| header.member_id == status.leader) {
                return Ok(client.clone());
            }
        }
        anyhow::bail!("no leader")
    })?;
    let system = EtcdSystem { target: Arc::new(Etcd { leader }), members };
    Ok(Some((version(&etcd, &["--version"]), vec![Box::new(system)])))
}

impl System for EtcdSystem {
    fn name(&self) -> &str {
        "etcd"
    }

    fn shape(&self) -> String {
        format!(
            "gRPC to the leader, at most {CHANNELS_MAX} connections shared; a write is answered when two of three members \
             have synced it, a read is linearizable"
        )
    }

    fn pids(&self) -> Vec<u32> {
        self.members.iter().map(Process::pid).collect()
    }

    fn connections(&self, clients: usize) -> usize {
        clients.min(CHANNELS_MAX)
    }

    fn does(&self, _: Mix) -> bool {
        true
    }

    fn run(&self, workload: &Workload) -> anyhow::Result<RunOutcome> {
        drive(&self.target, workload)
    }
}

/// A connection.
pub(crate) struct EtcdStore(Channel);

async fn channel(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).context("an address")?;
    Ok(endpoint.tcp_nodelay(true).connect().await?)
}

async fn call<M, R>(channel: &Channel, path: &'static str, message: M) -> Result<R, Status>
where
    M: prost::Message + Send + Sync + 'static,
    R: prost::Message + Default + Send + Sync + 'static,
{
    // A page of large values exceeds tonic's default limit.
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::default();
    Ok(grpc.unary(Request::new(message), PathAndQuery::from_static(path), codec).await?.into_inner())
}

fn failed(status: Status) -> Failure {
    Failure::new(format!("{:?}", status.code()), status.message())
}

impl Connector for Etcd {
    type Store = EtcdStore;

    async fn connect(&self) -> Result<EtcdStore, Failure> {
        let connected = channel(&self.leader).await;
        connected.map(EtcdStore).map_err(|error| Failure::new("Unreachable", error.to_string()))
    }
}

impl Store for EtcdStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Failure> {
        let request = RangeRequest { key: Bytes::copy_from_slice(key), ..RangeRequest::default() };
        let found: RangeResponse = call(&self.0, "/etcdserverpb.KV/Range", request).await.map_err(failed)?;
        Ok(found.kvs.into_iter().next().map(|found| found.value))
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), Failure> {
        let request = PutRequest { key: Bytes::copy_from_slice(key), value };
        let _: PutResponse = call(&self.0, "/etcdserverpb.KV/Put", request).await.map_err(failed)?;
        Ok(())
    }

    async fn scan(&self, prefix: &[u8], after: &[u8], limit: u32) -> Result<ScanResult, Failure> {
        let key = [after, b"\0"].concat().into();
        let mut range_end = prefix.to_vec();
        // The prefixes of measurements do not end with the highest byte.
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        let request = RangeRequest { key, range_end: range_end.into(), limit: i64::from(limit) };
        let found: RangeResponse = call(&self.0, "/etcdserverpb.KV/Range", request).await.map_err(failed)?;
        let bytes = found.kvs.iter().map(|found| found.key.len() + found.value.len()).sum();
        Ok(ScanResult { entries: found.kvs.len(), bytes })
    }
}
