//! A lease that a server holds.

use super::row::{Etag, Row};
use std::sync::Arc;

/// A partition, as taken once. Each later holder has a higher token, so storage that refuses lower ones is safe from a
/// former holder that noticed its loss too late.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lease {
    /// The partition.
    pub partition: u32,
    /// The ETag under which it was taken.
    pub token: u64,
}

/// Reason of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseReason {
    /// The service dropped it.
    Dropped,
    /// The server exceeds its load limit.
    Overloaded,
    /// The server stops.
    Stopped,
}

/// Stage of a server's lease on a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The service prepares.
    Acquiring,
    /// The service accepts work for it.
    Owned,
    /// The service finishes its work.
    Releasing,
    /// Released; the row is still to be written.
    Released,
}

/// A lease that was taken, until it is lost or broken.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) lease: Lease,
    pub(super) stage: Stage,
    /// The ETag of the last acknowledged write.
    pub(super) etag: Etag,
    /// The first moment that the lease does not cover.
    pub(super) until: u64,
    pub(super) renew_at: u64,
    /// The row when it was taken.
    pub(super) row: Arc<Row>,
    /// Current load.
    pub(super) load: u64,
}

impl HeldLease {
    pub(super) fn is_owned(&self) -> bool {
        self.stage != Stage::Released
    }

    /// Returns the row to write.
    pub(super) fn row(&self, server: &str, now: u64, broken: bool) -> Row {
        Row {
            server: server.to_owned(),
            at_ms: now,
            broken,
            // The row is replaced as a whole. The ETag ensures that no prohibition was added since it was read.
            prohibited: self.row.prohibited.clone(),
            load: self.load,
        }
    }
}
