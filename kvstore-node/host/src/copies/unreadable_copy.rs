//! A copy that is kept and not served.

use archon_replica::Position;
use archon_types::{Epoch, Millis, PartitionId, Version};

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
}

impl UnreadableCopy {
    pub(crate) fn new(partition: PartitionId, epoch: Epoch, last: Position) -> Self {
        Self { partition, epoch, last, named: None, not_before: Millis::ZERO }
    }
}
