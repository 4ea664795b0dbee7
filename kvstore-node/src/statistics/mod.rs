//! Metrics of a node, load reports, durations of operations, and the log of slow operations.

pub(crate) mod load;
pub(crate) mod metrics;
pub(crate) mod op_times;
pub(crate) mod slow;
pub(crate) mod stats;
