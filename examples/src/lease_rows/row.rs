//! A lease, as stored.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Version of a row's content: a writer names the version it has read, and every write assigns a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Etag(pub u64);

/// Content of a row. Safety depends on the ETag alone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// Last writer; empty if the partition never had a holder.
    pub server: String,
    /// Time of the write, by that server's own clock: for people.
    pub at_ms: u64,
    /// That server has broken the lease: it may be taken at once.
    pub broken: bool,
    /// Servers that must not take it.
    pub prohibited: BTreeSet<String>,
    /// Load of the partition, in a unit that the service chooses.
    pub load: u64,
}

/// A row with its partition and its ETag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedRow {
    /// The partition.
    pub partition: u32,
    /// Expected by the next write.
    pub etag: Etag,
    /// Its content.
    pub row: Arc<Row>,
}
