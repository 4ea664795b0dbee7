//! Full disks and pinned logs of the nodes.

use crate::leader::load::SpaceWait;
use crate::leader::session::Session;
use archon_types::{DiskFull, LogPin, NodeId};
use std::time::Instant;

/// Disk reports of the nodes.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    /// Nodes that refuse writes because their disks are full.
    pub(in crate::service) full: Vec<(NodeId, DiskFull)>,
    /// Nodes that wait for disk space before they register.
    pub(in crate::service) waits: Vec<(NodeId, SpaceWait)>,
    /// Nodes on which a replica retains much of the log.
    pub(in crate::service) log_pins: Vec<(NodeId, LogPin)>,
}

/// Copies the disk reports of the nodes; heartbeats need the lock, so it is released at once.
pub(crate) fn disks(session: &Session) -> Disks {
    let loads = session.loads().lock();
    let waits = loads.waits(Instant::now()).collect();
    Disks { full: loads.full_disks().collect(), waits, log_pins: loads.log_pins().collect() }
}
