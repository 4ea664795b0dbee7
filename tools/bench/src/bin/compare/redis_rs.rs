//! Redis Cluster through its Rust library: a few clients, each shared by many tasks.

use archon_load::{Connector, Failure, Store};
use bytes::Bytes;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncCommands, RedisError};

/// A Redis Cluster accessed by `redis-rs`.
pub(crate) struct RedisRs {
    client: ClusterClient,
}

impl RedisRs {
    /// Creates it without contacting the masters.
    pub(crate) fn new(masters: &[String]) -> Result<Self, RedisError> {
        let addresses = masters.iter().map(|master| format!("redis://{master}"));
        Ok(Self { client: ClusterClient::new(addresses.collect::<Vec<_>>())? })
    }
}

/// One client. Its clones share its connections, one per master, pipelined.
pub(crate) struct RedisRsStore(ClusterConnection);

fn failed(error: RedisError) -> Failure {
    Failure::new(format!("{:?}", error.kind()), error.to_string())
}

impl Connector for RedisRs {
    type Store = RedisRsStore;

    async fn connect(&self) -> Result<RedisRsStore, Failure> {
        self.client.get_async_connection().await.map(RedisRsStore).map_err(failed)
    }
}

impl Store for RedisRsStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Failure> {
        let value: Option<Vec<u8>> = self.0.clone().get(key).await.map_err(failed)?;
        Ok(value.map(Bytes::from))
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), Failure> {
        self.0.clone().set(key, value.as_ref()).await.map_err(failed)
    }
}
