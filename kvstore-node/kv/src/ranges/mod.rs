//! Splits and merges: seals, effects, and records of merges.

pub(crate) mod merged;
pub mod reshape;
pub(crate) mod seal;
