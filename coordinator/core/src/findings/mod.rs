//! Findings for people: alerts, reasons for unavailability, past events, and the leader's memory.

pub(crate) mod alerts;
pub(crate) mod explain;
pub(crate) mod remembered;
pub(crate) mod unserved;
