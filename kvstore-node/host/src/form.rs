//! What is to be done to form a copy of a new partition on its node.

use archon_replica::Position;
use archon_types::{KeyRange, PlacementId};

/// A copy of a new partition that is to be formed from a copy of the partition that it is split from, on the same node. Whoever
/// asks for it sees to it that the engine holds everything of `from` up to `at`, and that nothing in the range changes any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormJob {
    /// The attempt to split that it belongs to: the end of the job bears its number.
    pub attempt: u64,
    /// The copy that has the rows.
    pub from: PlacementId,
    /// The copy that is to have them; what its space holds is removed first.
    pub to: PlacementId,
    /// The users' keys that it is to have.
    pub range: KeyRange,
    /// Where its log begins: of the entry that sealed the range.
    pub at: Position,
}
