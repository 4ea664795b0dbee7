//! Pins of a node's write-ahead log: old entries that prevent its truncation.

use crate::PlacementId;
use serde::{Deserialize, Serialize};

/// A replica whose old log entries retain much of its node's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPin {
    /// The replica.
    pub placement: PlacementId,
    /// Bytes of the log retained by its entries, and by other replicas' entries of the same age.
    pub bytes: u64,
}
