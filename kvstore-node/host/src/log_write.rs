//! What a copy has written to the node's log.

use archon_replica::{Entry, Position};
use archon_types::{Epoch, PartitionId, Seq};

/// One write. Those of a turn become durable together, in this order, or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogWrite {
    /// A copy of this partition begins, with nothing in it.
    Open(PartitionId),
    /// The highest epoch that the copy obeys.
    Epoch(Epoch),
    /// Entries that follow on the last one.
    Entries(Vec<Entry>),
    /// What comes after is thrown away.
    Cut {
        /// The last position that is kept.
        after: Seq,
    },
    /// Everything is thrown away, and the log begins anew.
    Begin {
        /// Whose copy it is.
        partition: PartitionId,
        /// The highest epoch that it obeys.
        epoch: Epoch,
        /// The position before the first entry to come.
        base: Position,
    },
    /// The engine holds everything up to here, on its disk.
    Complete(Position),
    /// Everything up to here is committed. Noted now and then, so that a start that finds much after [`LogWrite::Complete`] can give it to
    /// the engine before it has read all.
    Commit(Position),
    /// Nothing up to here is needed any more; to be durable before it is forgotten.
    Base(Position),
    /// Nothing of the copy is needed any more.
    Drop,
}
