//! Relays of a participant, which coordinators send with its duties (PROTOCOL rule 81).

use archon_member::next_by_relay;
use archon_session::{BeatOutcome, Recipient, RelayWays};
use archon_types::{Millis, RelayAddress};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Heartbeat interval in milliseconds above which a participant uses the coordinators directly: relays close streams
/// that are silent for long, and so few heartbeats do not justify a connection for each.
const RARELY_MS: u64 = 5_000;

/// The relays for a participant's heartbeats.
pub(super) struct Relays {
    ways: RelayWays,
    /// Number of relays according to the last answer to a heartbeat.
    count: AtomicU32,
    heartbeat_ms: u64,
    /// Interval between batches of a relay.
    relay_every_ms: u64,
}

impl Relays {
    /// Creates an empty set for a participant with this heartbeat interval.
    pub(super) fn new(heartbeat_ms: u64, relay_every_ms: u64) -> Self {
        Self { ways: RelayWays::default(), count: AtomicU32::new(0), heartbeat_ms, relay_every_ms }
    }

    /// Sets the relays sent by a coordinator.
    pub(super) fn learn(&self, relays: Vec<RelayAddress>) {
        self.ways.set(relays);
    }

    /// Sets the number of relays sent by a coordinator.
    pub(super) fn note_count(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// Returns the relays to try in this round before the coordinators, in order.
    pub(super) fn order(&self) -> Vec<RelayAddress> {
        self.ways.order(self.count.load(Ordering::Relaxed) > 0 && self.heartbeat_ms <= RARELY_MS)
    }

    /// Records the member that answered.
    pub(super) fn answered_by(&self, who: Recipient<'_>) {
        self.ways.answered_by(match who {
            Recipient::Relay(relay) => Some(relay),
            Recipient::Coordinator(_) => None,
        });
    }

    /// Returns the delay from `sent` to the next heartbeat, if a relay announced its next batch at `now`.
    pub(super) fn next_after(&self, sent: Millis, now: Millis, answered: &BeatOutcome) -> Option<Duration> {
        let departure_ms = answered.next_departure_ms?;
        let next = next_by_relay(sent, now, departure_ms, self.heartbeat_ms, self.relay_every_ms);
        Some(Duration::from_millis(next.since(sent)))
    }

    /// Returns the minimum time for which a relay keeps a heartbeat for the next leader.
    pub(super) fn kept_for(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.min(self.relay_every_ms) / 2)
    }
}
