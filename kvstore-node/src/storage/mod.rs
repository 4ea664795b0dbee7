//! Stored rows around log and engine: the log's format, snapshots, and slow walks.

pub(crate) mod row_walk;
pub(crate) mod size_scan;
pub(crate) mod snapshots;
pub(crate) mod store;
