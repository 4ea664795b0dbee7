//! Counters of a participant.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a participant since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ParticipantStats {
    /// Registrations; more than one means that an incarnation was fenced, or the cluster forgot it.
    pub registrations: u64,
    /// Heartbeats answered with a grant.
    pub heartbeats: u64,
    /// Heartbeats among these that a node relayed.
    pub heartbeats_relayed: u64,
    /// Rounds of heartbeats without a grant.
    pub heartbeats_failed: u64,
    /// Leases that had expired before the next one came.
    pub leases_lapsed: u64,
    /// Partitions that the service started to acquire.
    pub acquisitions: u64,
    /// Releases among these.
    pub releases: u64,
    /// Losses among these.
    pub losses: u64,
}

/// A number that only increases.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) registrations: Counter,
    pub(super) heartbeats: Counter,
    pub(super) heartbeats_relayed: Counter,
    pub(super) heartbeats_failed: Counter,
    pub(super) leases_lapsed: Counter,
    pub(super) acquisitions: Counter,
    pub(super) releases: Counter,
    pub(super) losses: Counter,
}

impl Counters {
    pub(super) fn read(&self) -> ParticipantStats {
        ParticipantStats {
            registrations: self.registrations.get(),
            heartbeats: self.heartbeats.get(),
            heartbeats_relayed: self.heartbeats_relayed.get(),
            heartbeats_failed: self.heartbeats_failed.get(),
            leases_lapsed: self.leases_lapsed.get(),
            acquisitions: self.acquisitions.get(),
            releases: self.releases.get(),
            losses: self.losses.get(),
        }
    }
}
