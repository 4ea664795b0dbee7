//! A round of relayed heartbeats.

use archon_member::{AttemptTarget, Attempts};
use archon_types::{Millis, NodeId};

/// A heartbeat that is tried on one path after the other.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) attempts: Attempts<usize>,
    /// Relays left to try at its begin.
    pub(crate) relays: Vec<NodeId>,
    /// Paths of the last attempt, with their numbers.
    pub(crate) asked: Vec<AttemptTarget<usize>>,
    pub(crate) numbers: Vec<u64>,
    pub(crate) sent: Millis,
    pub(crate) given_up_at: Millis,
}
