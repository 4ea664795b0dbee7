//! Rows of a partition: their encoding, and those in memory between the log and the engine.

pub(crate) mod cleared_ranges;
pub(crate) mod expiry_index;
pub(crate) mod frozen_rows;
pub(crate) mod growth;
pub(crate) mod memtable;
pub(crate) mod memtable_budget;
mod newer;
#[cfg(test)]
pub(crate) mod plain;
pub mod row;
mod row_map;
pub(crate) mod view;
