//! Requests for rows of a merge source, and their pages.

use archon_kv::engine::Row;
use archon_types::{Millis, PartitionId, PlacementId, Revision, Version};
use bytes::Bytes;

/// Request for rows of the partition that is merged in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YieldAsk {
    /// The requesting partition.
    pub left: PartitionId,
    /// Its leading copy.
    pub placement: PlacementId,
    /// Number of the request, which the answer carries.
    pub ask: u64,
    /// The partition that gives its rows.
    pub right: PartitionId,
    /// The merge attempt.
    pub attempt: Version,
    /// Key of the last row received; `None` for the first page.
    pub after: Option<Bytes>,
}

/// Page of rows of a partition that is merged in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YieldPage {
    /// In order of key, as they are stored.
    pub rows: Vec<Row>,
    /// More rows follow.
    pub more: bool,
    /// Upper bound of all revisions that the partition has or ever had.
    pub revision: Revision,
    /// Log time of the partition: values that expire at or before it are absent.
    pub log_time: Millis,
}
