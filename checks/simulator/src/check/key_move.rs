//! Moves of keys from one partition to another.

use archon_types::{KeyRange, PartitionId};

/// Keys that moved from one partition to another.
#[derive(Debug)]
pub(crate) struct KeyMove {
    pub(super) from: PartitionId,
    pub(super) to: PartitionId,
    pub(super) keys: KeyRange,
    /// For a split, the revision above which `to` continues, as does `from`.
    pub(super) sealed: Option<u64>,
}

/// Owner of a key at the begin of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyOwner {
    pub(crate) owner: PartitionId,
    /// Number of key moves by then.
    pub(crate) key_moves: usize,
}
