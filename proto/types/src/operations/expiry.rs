//! Expiry of a value that is written.

use crate::ids::Millis;
use serde::{Deserialize, Serialize};

/// Expiry of a value that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Expiry {
    /// Of the value that is overwritten; none if the key is absent.
    Keep,
    /// So many milliseconds of log time after the entry that writes it, at least 1.
    After(u64),
    /// At this log time. A value that is due already is removed in the same entry.
    At(Millis),
}
