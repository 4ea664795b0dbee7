//! A copy that is kept and not served.

use archon_replica::Position;
use archon_types::{Epoch, Millis, NodeId, PartitionId, Version};

/// A copy that is kept and not served.
#[derive(Debug)]
pub(crate) struct UnreadableCopy {
    pub(crate) partition: PartitionId,
    /// The highest epoch that it accepts.
    pub(crate) epoch: Epoch,
    /// The end of its log on disk.
    pub(crate) last: Position,
    /// The leadership that it was named for and has not given up: epoch and row version.
    pub(crate) named: Option<(Epoch, Version)>,
    /// Earliest time to give up the next leadership.
    pub(crate) not_before: Millis,
    /// A leadership was given up, so the coordinators know that the partition is not served.
    pub(crate) is_released: bool,
    /// Nodes of the other Live copies, if the engine refuses to read its rows. Later leaderships are given up only if
    /// one of them is alive: the copy is served again once the engine is opened again.
    pub(crate) heirs: Option<Vec<NodeId>>,
}

impl UnreadableCopy {
    pub(crate) fn new(partition: PartitionId, epoch: Epoch, last: Position) -> Self {
        Self { partition, epoch, last, named: None, not_before: Millis::ZERO, is_released: false, heirs: None }
    }
}
