//! Moves of keys between partitions. Positions of two partitions are comparable only along these moves: a split-off
//! partition continues above the parent's seal, and a merge target above all positions of the merge source. Writes of
//! the other partition to its remaining keys use the same numbers meanwhile and say nothing about the moved keys, even
//! after these come back.

use crate::check::checks::Checks;
use crate::check::key_move::KeyOwner;
use archon_types::PartitionId;

impl Checks {
    /// Records the begin of an operation on this key, or on keys of this partition only.
    pub(crate) fn begins_at(&self, partition: PartitionId, key: Option<&[u8]>) -> KeyOwner {
        let owner = key.map_or(partition, |key| self.owner_of(partition, key));
        KeyOwner { owner, key_moves: self.key_moves.len() }
    }

    /// Returns the minimum position, at the partition `done` that answered, of an operation on a key that began at
    /// `floor`. It follows the moves from the begin to the answering partition, not to the current owner: an answer may
    /// be in flight while the key moves on, even back to its first partition. Moves before the begin loosen nothing,
    /// and neither does an answer of a partition that was not to own the key afterwards.
    pub(crate) fn floor_where_done(&self, key: &[u8], began: KeyOwner, floor: u64, done: PartitionId) -> u64 {
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
