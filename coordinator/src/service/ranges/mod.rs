//! Splits and merges by operators.

mod merge;
mod middle;
pub(super) mod range_changes;
mod split;
