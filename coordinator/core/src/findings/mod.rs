//! Findings and events: alerts, reasons for unavailability, their list, facts of events, totals, and the leader's memory. They
//! are data; sentences and remedies belong to the documents.

pub(crate) mod alerts;
pub(crate) mod counts;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod intent;
pub(crate) mod leader_view;
pub(crate) mod list;
pub(crate) mod totals;
pub(crate) mod unavailable_partitions;
pub(crate) mod upgrade;
pub(crate) mod waits;
