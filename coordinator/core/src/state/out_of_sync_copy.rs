//! Copies that left sync, and how much data each may still hold.

pub use archon_types::Condition;
use archon_types::Version;
use serde::{Deserialize, Serialize};

/// A copy that left sync. An entry is also kept for an Unload copy until its node has the order to delete it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutOfSyncCopy {
    /// The row's version at which it left sync.
    pub at: Version,
    /// Condition of its data, never [`Condition::Partial`].
    pub condition: Condition,
    /// It was lost or damaged, not merely dropped: it is not brought up to date. It stays as it is until another copy
    /// may replace it, or an operator names it.
    pub lost: bool,
}
