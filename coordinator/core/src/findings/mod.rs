//! Findings for people: alerts, reasons for unavailability, totals, and the leader's memory.

pub(crate) mod alerts;
pub(crate) mod explain;
pub(crate) mod remembered;
pub(crate) mod totals;
pub(crate) mod unserved;
