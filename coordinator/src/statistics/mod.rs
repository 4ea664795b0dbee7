//! Metrics of a coordinator: counters, and values read on demand.

pub(crate) mod metrics;
pub(crate) mod stats;
