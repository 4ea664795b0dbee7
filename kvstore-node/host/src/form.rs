//! What is to be done to form a copy of a new partition on its node.

use archon_types::{KeyRange, PlacementId};

/// A copy of a new partition that is to be formed from a copy of the partition that it is split from, on the same node. Whoever
/// asks for it sees to it that the rows of `from` are those of one log, and are not being pulled from elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormJob {
    /// The attempt to split that it belongs to: what is told of the job bears its number.
    pub attempt: u64,
    /// The copy that has the rows.
    pub from: PlacementId,
    /// The copy that is to have them; what its space holds is removed first.
    pub to: PlacementId,
    /// The users' keys that it is to have.
    pub range: KeyRange,
}
