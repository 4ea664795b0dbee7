//! Full disks and pinned logs of the nodes.

use crate::leader::session::Session;
use archon_coordinator_core::Disks;
use std::time::Instant;

/// Copies the disk reports of the nodes; heartbeats need the lock, so it is released at once.
pub(crate) fn disks(session: &Session) -> Disks {
    let loads = session.loads().lock();
    let waits = loads.waits(Instant::now()).map(|(node, wait)| (node, wait.lack, wait.began)).collect();
    Disks { full: loads.full_disks().collect(), waits, log_pins: loads.log_pins().collect() }
}
