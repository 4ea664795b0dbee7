//! What all participants count together.

use hdrhistogram::Histogram;

/// What was counted since it was last taken.
pub(crate) struct Counted {
    /// How long heartbeats took that were answered by a grant.
    pub(crate) micros: Histogram<u64>,
    /// Heartbeats that were not answered in time.
    pub(crate) missed: u64,
    /// Heartbeats that were answered when the lease before had ended.
    pub(crate) lapsed: u64,
    /// Partitions that began to be owned.
    pub(crate) grants: u64,
    /// Participants whose lives the coordinator has ended.
    pub(crate) ended: u64,
}

impl Counted {
    pub(crate) fn new() -> Self {
        Self { micros: micros(), missed: 0, lapsed: 0, grants: 0, ended: 0 }
    }
}

/// Times of up to a minute, in microseconds.
pub(crate) fn micros() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000, 3).expect("three digits up to a minute")
}
