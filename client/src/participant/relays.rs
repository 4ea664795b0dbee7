//! The relays of a participant, as coordinators tell it with its duties (PROTOCOL rule 81).

use archon_member::next_by_relay;
use archon_session::{Answered, Recipient, RelayWays};
use archon_types::{Millis, RelayAddress};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Whoever beats more rarely than this, in milliseconds, asks the coordinators: a relay gives up a stream that is silent for long, and so few
/// heartbeats are not worth a connection for each.
const RARELY_MS: u64 = 5_000;

/// By which relays a participant's heartbeats travel.
pub(super) struct Relays {
    ways: RelayWays,
    /// How many relays there are, as the last answer to a heartbeat said.
    count: AtomicU32,
    heartbeat_ms: u64,
    /// How often the batches of a relay leave.
    relay_every_ms: u64,
}

impl Relays {
    /// None is known yet to a participant that beats every `heartbeat_ms`.
    pub(super) fn new(heartbeat_ms: u64, relay_every_ms: u64) -> Self {
        Self { ways: RelayWays::default(), count: AtomicU32::new(0), heartbeat_ms, relay_every_ms }
    }

    /// A coordinator said which they are.
    pub(super) fn learn(&self, relays: Vec<RelayAddress>) {
        self.ways.set(relays);
    }

    /// A coordinator said how many nodes relay.
    pub(super) fn note_count(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// Those to be tried in this round, in this order, before the coordinators.
    pub(super) fn order(&self) -> Vec<RelayAddress> {
        self.ways.order(self.count.load(Ordering::Relaxed) > 0 && self.heartbeat_ms <= RARELY_MS)
    }

    /// Who answered.
    pub(super) fn answered_by(&self, who: Recipient<'_>) {
        self.ways.answered_by(match who {
            Recipient::Relay(relay) => Some(relay),
            Recipient::Coordinator(_) => None,
        });
    }

    /// How long after `sent` the next heartbeat is due, if a relay said at `now` when its next batch leaves.
    pub(super) fn next_after(&self, sent: Millis, now: Millis, answered: &Answered) -> Option<Duration> {
        let departure_ms = answered.next_departure_ms?;
        let next = next_by_relay(sent, now, departure_ms, self.heartbeat_ms, self.relay_every_ms);
        Some(Duration::from_millis(next.since(sent)))
    }

    /// For how long a relay surely keeps a heartbeat for whoever leads next.
    pub(super) fn kept_for(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.min(self.relay_every_ms) / 2)
    }
}
