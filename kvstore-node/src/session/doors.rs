//! Results of probing other nodes, computed from the node rows and reported with each heartbeat.

use archon_member::{Doors, Knock};
use archon_types::{DoorReport, Millis, Node};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Probe state of this node.
#[derive(Debug, Default)]
pub(crate) struct DoorKeeper {
    /// Probe interval in milliseconds, as last set by a coordinator; zero disables probing.
    every_ms: AtomicU64,
    /// Notified when that changes.
    changed: Notify,
    doors: Mutex<Doors>,
}

impl DoorKeeper {
    /// Sets the probe interval of a coordinator.
    pub(super) fn note_every(&self, every_ms: u64) {
        if self.every_ms.swap(every_ms, Ordering::Relaxed) != every_ms {
            self.changed.notify_one();
        }
    }

    /// Returns the report at `now`, if this node probes any.
    pub(super) fn report(&self, now: Millis) -> Option<DoorReport> {
        self.doors.lock().report(now)
    }

    /// Returns the probe interval in milliseconds; zero if probing is disabled.
    pub(super) fn every_ms(&self) -> u64 {
        self.every_ms.load(Ordering::Relaxed)
    }

    /// Returns once the probe interval has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Keeps the results of these nodes, to be probed at this interval, and drops all others. Returns the time for one
    /// probe.
    pub(super) fn keep(&self, every_ms: u64, nodes: &[Node]) -> Duration {
        let mut doors = self.doors.lock();
        doors.keep(every_ms, nodes.iter().map(|node| (node.id, node.incarnation)));
        Duration::from_millis(doors.within_ms())
    }

    /// Records the result of a probe.
    pub(super) fn note(&self, knock: Knock) {
        self.doors.lock().note(knock);
    }

    /// Drops all results.
    pub(super) fn forget(&self) {
        self.doors.lock().keep(0, []);
    }
}
