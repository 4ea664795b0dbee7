//! Positions in a partition's log.

use crate::ids::{Epoch, Seq};
use serde::{Deserialize, Serialize};

/// Position in a partition's log: two logs that hold the same position are equal up to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Position {
    /// Epoch whose leader wrote the entry.
    pub epoch: Epoch,
    /// Number, from 1; zero is "before the first entry".
    pub seq: Seq,
}

impl Position {
    /// Position before the first entry; every log holds it.
    pub const ZERO: Self = Self { epoch: Epoch::ZERO, seq: Seq::ZERO };

    /// Creates the position `(epoch, seq)`.
    pub const fn new(epoch: Epoch, seq: Seq) -> Self {
        Self { epoch, seq }
    }
}
