//! Findings: alerts, reasons for unavailability, their list, totals, and the leader's memory. They are data; sentences and
//! remedies belong to the documents.

pub(crate) mod alerts;
pub(crate) mod counts;
pub(crate) mod explain;
pub(crate) mod intent;
pub(crate) mod list;
pub(crate) mod remembered;
pub(crate) mod totals;
pub(crate) mod unserved;
pub(crate) mod upgrade;
pub(crate) mod waits;
