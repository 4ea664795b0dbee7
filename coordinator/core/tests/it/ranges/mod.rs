//! Splits and merges of partitions by ranges.

mod automatic_merges;
mod automatic_splits;
pub(crate) mod merges;
pub(crate) mod mutants;
mod progress;
mod random;
mod split_copying;
pub(crate) mod splits;
