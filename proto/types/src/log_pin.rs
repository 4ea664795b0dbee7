//! Pins of a node's write-ahead log: old entries that keep it from shrinking.

use crate::PlacementId;
use serde::{Deserialize, Serialize};

/// A copy with old log entries that keep much of its node's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPin {
    /// The copy.
    pub placement: PlacementId,
    /// Bytes of the log that its entries, and those of other copies as old, keep.
    pub bytes: u64,
}
