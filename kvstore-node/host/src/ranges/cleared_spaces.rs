//! Spaces of the engine that were cleared since the node started.

use archon_types::PlacementId;
use std::collections::BTreeSet;

/// Number of spaces that are remembered, of the newest copies.
const SPACES_MAX: usize = 16_384;

/// Spaces of the engine with a requested clearing. Each has an owner by now, which may have rows in it, or its copy was
/// deleted: no copy of a new partition is formed there because of an old row, and none that was formed is adopted.
///
/// Copy numbers only rise, and a late request to form a copy is for a recent one, so the lowest numbers are dropped
/// first.
#[derive(Clone, Default, Debug)]
pub struct ClearedSpaces(BTreeSet<PlacementId>);

impl ClearedSpaces {
    /// Adds a space.
    pub fn insert(&mut self, space: PlacementId) {
        self.0.insert(space);
        if self.0.len() > SPACES_MAX {
            self.0.pop_first();
        }
    }

    /// Returns whether this space was cleared.
    pub fn contains(&self, space: PlacementId) -> bool {
        self.0.contains(&space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_spaces_keep_newest_copies() {
        let mut cleared = ClearedSpaces::default();
        let last = SPACES_MAX as u64 + 1;
        (1..=last).rev().map(PlacementId::new).for_each(|space| cleared.insert(space));
        assert!(!cleared.contains(PlacementId::new(1)), "the oldest was dropped");
        assert!([2, last].map(PlacementId::new).into_iter().all(|space| cleared.contains(space)));
    }
}
