//! Requests, jobs and pages of copies between nodes.

use archon_replica::{Position, ReplicaAddress};
use archon_types::{Epoch, PartitionId, PlacementId, Seq, Version};

/// Request of a loader for a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyAsk {
    /// The partition.
    pub partition: PartitionId,
    /// The copy that loads.
    pub loader: PlacementId,
    /// The copy that should serve it.
    pub source: PlacementId,
    /// The epoch in which the loader follows the source.
    pub epoch: Epoch,
    /// Start position of a copy that should resume; zero for a new one.
    pub resume: Seq,
}

/// Start of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyStart {
    /// The log is kept from the entry after this one.
    pub at: Position,
    /// Version of the row under which the copy is served: in it the loader is not in sync.
    pub version: Version,
    /// Resumes an earlier attempt; its rows are still good.
    pub resumed: bool,
}

/// Pull of one copy into an empty space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyJob {
    /// The partition.
    pub partition: PartitionId,
    /// The copy that loads.
    pub placement: PlacementId,
    /// Number of the clearing that emptied the space; all results of this job carry it.
    pub attempt: u64,
    /// The copy that serves it.
    pub leader: ReplicaAddress,
    /// The epoch in which it leads.
    pub epoch: Epoch,
}

/// A page of a copy that this node pulls.
#[derive(Clone, Debug)]
pub struct CopyPage<P> {
    /// The copy that loads.
    pub placement: PlacementId,
    /// The clearing after which it was pulled; pages of an earlier one are dropped.
    pub attempt: u64,
    /// Number of the stream that brought it, within the attempt.
    pub stream: u64,
    /// Its rows.
    pub content: P,
}

/// Result of an offer of rows to the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OfferResult<P> {
    /// Accepted, or no longer needed.
    Taken,
    /// No room now.
    Wait(P),
}
