//! Archon, by its client library.

use crate::failure::Failure;
use crate::store::{Connector, ScanResult, Store};
use archon_client::{Client, Transport};
use bytes::Bytes;
use std::time::Duration;

/// An Archon cluster.
#[derive(Clone, Debug)]
pub struct Archon {
    /// Coordinators or nodes; one reachable endpoint is enough.
    pub endpoints: Vec<String>,
    /// The table to work on.
    pub table: String,
    /// Time-out of one operation, retries included.
    pub timeout: Duration,
    /// Transport of the connections.
    pub transport: Transport,
}

/// One client library with its connections, one per node.
#[derive(Debug)]
pub struct ArchonStore(Client);

impl Connector for Archon {
    type Store = ArchonStore;

    async fn connect(&self) -> Result<ArchonStore, Failure> {
        let builder = Client::builder(self.endpoints.clone()).transport(self.transport.clone());
        let builder = builder.timeout(self.timeout).table(&self.table);
        Ok(ArchonStore(builder.build().await?))
    }
}

impl Store for ArchonStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Failure> {
        Ok(self.0.get(key).await?.map(|found| found.value))
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), Failure> {
        self.0.put(key, value).await?;
        Ok(())
    }

    async fn scan(&self, prefix: &[u8], after: &[u8], limit: u32) -> Result<ScanResult, Failure> {
        let page = self.0.scan(prefix).after(after).limit(limit).page().await?;
        let bytes = page.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
        Ok(ScanResult { entries: page.entries.len(), bytes })
    }
}
