//! Tables and partitions: rows, deltas, key ranges, and their splits and merges.

pub(crate) mod condition;
pub(crate) mod key_range;
pub(crate) mod merge;
pub(crate) mod partition;
pub(crate) mod partition_table;
pub(crate) mod piece;
pub(crate) mod position;
pub(crate) mod range_limits;
pub(crate) mod removed;
pub(crate) mod slot;
pub(crate) mod split;
pub(crate) mod table;
