//! Writes of a copy to the node's log.

use archon_replica::{Entry, Position};
use archon_types::{Epoch, PartitionId, Seq};

/// One write. Those of a turn become durable together, in this order, or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogWrite {
    /// Creates an empty copy of this partition.
    Open(PartitionId),
    /// Highest epoch that the copy accepts.
    Epoch(Epoch),
    /// Entries that follow the last one.
    Entries(Vec<Entry>),
    /// Discards all later entries.
    Cut {
        /// The last position that is kept.
        after: Seq,
    },
    /// Discards everything and restarts the log.
    Begin {
        /// The partition it is a copy of.
        partition: PartitionId,
        /// Highest epoch that it accepts.
        epoch: Epoch,
        /// The position before the first entry to come.
        base: Position,
    },
    /// The engine holds everything up to here, on disk.
    Complete(Position),
    /// Everything up to here is committed. Noted regularly, so that a start that finds much after
    /// [`LogWrite::Complete`] can give it to the engine before it has read all.
    Commit(Position),
    /// Everything up to here may be trimmed; must be durable before the trim.
    Base(Position),
    /// Deletes the copy.
    Drop,
}
