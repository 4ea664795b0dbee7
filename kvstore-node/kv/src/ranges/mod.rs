//! Splits and merges: seals, effects, and records of merges.

pub(crate) mod merge_record;
pub mod reshape;
pub(crate) mod seal;
