//! A lease that a server holds.

use super::row::{Etag, Row};
use std::sync::Arc;

/// A partition that was taken once. Whoever takes it later has a higher token, so storage that refuses lower ones is safe from
/// whoever was too slow to notice that it lost it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Lease {
    /// Which.
    pub partition: u32,
    /// The ETag under which it was taken.
    pub token: u64,
}

/// Why a partition is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The service dropped it.
    Dropped,
    /// The server has more load than it may.
    Overloaded,
    /// The server stops.
    Stopped,
}

/// How far a server has come with a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The service makes ready.
    Acquiring,
    /// Work is taken for it.
    Owned,
    /// The service brings its work to an end.
    Releasing,
    /// It is over; that has to be written still.
    Released,
}

/// A lease that was taken, until it is lost or broken.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) lease: Lease,
    pub(super) stage: Stage,
    /// The ETag of the last write that was answered.
    pub(super) etag: Etag,
    /// The first moment that the lease does not cover.
    pub(super) until: u64,
    pub(super) renew_at: u64,
    /// As it was when it was taken.
    pub(super) row: Arc<Row>,
    /// What it costs now.
    pub(super) load: u64,
}

impl HeldLease {
    pub(super) fn is_owned(&self) -> bool {
        self.stage != Stage::Released
    }

    /// The row as it is to be written.
    pub(super) fn row(&self, server: &str, now: u64, broken: bool) -> Row {
        Row {
            server: server.to_owned(),
            at_ms: now,
            broken,
            // The row is replaced as a whole. The ETag sees to it that nobody has prohibited anybody since it was read.
            prohibited: self.row.prohibited.clone(),
            load: self.load,
        }
    }
}
