//! Splits and merges: their progress, automatic ones, and the checks of operators' ones.

pub(crate) mod automatic_merges;
pub(crate) mod automatic_splits;
pub(crate) mod common_checks;
pub(crate) mod merge_checks;
pub(crate) mod merges;
mod proposals;
pub(crate) mod range_changes;
mod rest;
pub(crate) mod split_checks;
pub(crate) mod splits;
pub(crate) mod step;
