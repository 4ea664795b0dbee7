//! Job description for forming a copy of a new partition.

use archon_types::{KeyRange, PlacementId};

/// Forms a copy of a new partition from the copy of its parent on the same node. The caller makes sure that the rows of
/// `from` are those of one log and are not being pulled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormJob {
    /// Number of the split attempt; results of the job carry it.
    pub attempt: u64,
    /// Source copy.
    pub from: PlacementId,
    /// Target copy; rows in its space are removed first.
    pub to: PlacementId,
    /// User keys of the new partition.
    pub range: KeyRange,
}
