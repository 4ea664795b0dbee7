//! Job of the flusher: form a replica of a new partition from the replica of its parent.

use archon_types::{KeyRange, PlacementId};

/// Forms a replica of a new partition from the replica of its parent on the same node. The caller makes sure that all
/// rows of `from` come from its own log, and that none are being pulled from another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormJob {
    /// Number of the split attempt; results of the job carry it.
    pub attempt: u64,
    /// Replica of the parent.
    pub from: PlacementId,
    /// Replica of the new partition; rows in its space are removed first.
    pub to: PlacementId,
    /// User keys of the new partition.
    pub range: KeyRange,
}
