//! Splits and merges by operators.

mod merge;
mod middle;
pub(super) mod reshapings;
mod split;
