//! Rows of a partition: their encoding, and those in memory between the log and the engine.

pub(crate) mod clears;
pub(crate) mod expiry_index;
pub(crate) mod frozen;
pub(crate) mod growth;
pub(crate) mod memtable;
pub(crate) mod memtable_budget;
mod newer;
#[cfg(test)]
pub(crate) mod plain;
pub mod row;
mod row_map;
pub(crate) mod view;
