//! Rows in Archon's key-value store: a key per partition, with its revision as the ETag.

use super::row::{Etag, ListedRow, Row};
use super::store::{Put, Rows, StoreError};
use archon_client::{Client, Error, Revision};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The rows below a prefix. Clones share the rows and the counts.
#[derive(Clone, Debug)]
pub struct KvRows {
    client: Client,
    prefix: String,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    written: AtomicU64,
}

impl KvRows {
    /// Returns the rows with this key prefix.
    pub fn new(client: Client, prefix: &str) -> Self {
        Self { client, prefix: prefix.to_owned(), counts: Arc::default() }
    }

    /// Creates a row for each of this many partitions; existing ones stay unchanged.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn create(&self, partitions: u32) -> Result<(), StoreError> {
        for partition in 0..partitions {
            self.client.put_if_absent(self.key(partition), serde_json::to_vec(&Row::default())?).await?;
        }
        Ok(())
    }

    /// Returns the numbers of rows read and written so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.read.load(Ordering::Relaxed), self.counts.written.load(Ordering::Relaxed))
    }

    fn key(&self, partition: u32) -> String {
        format!("{}{partition:010}", self.prefix)
    }
}

impl Rows for KvRows {
    async fn list(&self) -> Result<Vec<ListedRow>, StoreError> {
        let mut listed = Vec::new();
        let mut after = Vec::new();
        loop {
            let page = self.client.scan(&self.prefix).after(&after).page().await?;
            for entry in page.entries {
                let number = std::str::from_utf8(&entry.key[self.prefix.len()..])?;
                let etag = Etag(entry.revision.get());
                let row = Arc::new(serde_json::from_slice(&entry.value)?);
                listed.push(ListedRow { partition: number.parse()?, etag, row });
                after = entry.key.to_vec();
            }
            if !page.more {
                self.counts.read.fetch_add(listed.len() as u64, Ordering::Relaxed);
                return Ok(listed);
            }
        }
    }

    async fn put_if(&self, partition: u32, etag: Etag, row: &Row) -> Put {
        let Ok(value) = serde_json::to_vec(row) else { return Put::Conflict };
        match self.client.compare_and_set(self.key(partition), Revision::new(etag.0), value).await {
            Ok(revision) => {
                self.counts.written.fetch_add(1, Ordering::Relaxed);
                Put::Written(Etag(revision.get()))
            }
            Err(Error::ConditionFailed { .. }) => Put::Conflict,
            // Written, or possibly written: it is queried again under the same ETag.
            Err(_) => Put::Unknown,
        }
    }
}
