//! Relays of a participant, which coordinators send with its duties (PROTOCOL rule 81).

use archon_types::RelayAddress;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The relays for a participant's heartbeats.
#[derive(Debug, Default)]
pub(super) struct Relays {
    addresses: Mutex<Vec<RelayAddress>>,
    /// Number of relays according to the last answer to a heartbeat.
    count: AtomicU32,
}

impl Relays {
    /// Sets the relays sent by a coordinator.
    pub(super) fn learn(&self, relays: Vec<RelayAddress>) {
        *self.addresses.lock() = relays;
    }

    /// Sets the number of relays sent by a coordinator.
    pub(super) fn note_count(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// Returns the relays, the preferred one first; none if the coordinators want none.
    pub(super) fn current(&self) -> Vec<RelayAddress> {
        match self.count.load(Ordering::Relaxed) {
            0 => Vec::new(),
            _ => self.addresses.lock().clone(),
        }
    }
}
