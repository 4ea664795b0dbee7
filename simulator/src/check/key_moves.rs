//! The way of a key from partition to partition. Positions of two partitions compare along that way alone: a partition that is split off
//! goes on above where the other one sealed the keys, and one that gets keys by a merge above all that had them before. What the other one
//! writes to keys that it kept, while those are away, has the same numbers and says nothing of them, also when they come back.

use super::Checks;
use archon_types::{KeyRange, PartitionId};

/// Keys that went from one partition to another one.
#[derive(Debug)]
pub(super) struct KeyMove {
    pub(super) from: PartitionId,
    pub(super) to: PartitionId,
    pub(super) keys: KeyRange,
    /// The revision above which those of `to` go on, if those of `from` do so as well: it was a split.
    pub(super) sealed: Option<u64>,
}

/// Who had a key when an operation on it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Began {
    pub(crate) owner: PartitionId,
    /// How often keys had changed hands by then.
    key_moves: usize,
}

impl Checks {
    /// An operation on this key, or on keys of this partition alone, begins.
    pub(crate) fn begins_at(&self, partition: PartitionId, key: Option<&[u8]>) -> Began {
        let owner = key.map_or(partition, |key| self.owner_of(partition, key));
        Began { owner, key_moves: self.key_moves.len() }
    }

    /// What an operation on a key must not fall behind where it was `done`, if it began at `floor`. Followed is the way from there to
    /// whoever answered, not to whoever has the key by now: an answer may be on its way while the key moves on, even back to where it was
    /// when the operation began. What changed hands before it began loosens nothing, and nor does an answer of somebody who was not to have the
    /// key after that.
    pub(crate) fn floor_where_done(&self, key: &[u8], began: Began, floor: u64, done: PartitionId) -> u64 {
        let (mut owner, mut least) = (began.owner, floor);
        for key_move in self.key_moves.iter().skip(began.key_moves) {
            if owner == done {
                break;
            }
            if key_move.from == owner && key_move.keys.contains(key) {
                owner = key_move.to;
                least = key_move.sealed.map_or(least, |sealed| least.min(sealed));
            }
        }
        if owner == done { least } else { floor }
    }
}

#[cfg(test)]
#[path = "key_moves_tests.rs"]
mod tests;
