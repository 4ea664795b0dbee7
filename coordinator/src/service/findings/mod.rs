//! Findings for people: status, alerts, reasons and events.

mod alert_texts;
pub(super) mod alerts;
pub(crate) mod bars;
pub(super) mod certificates;
pub(super) mod describe;
pub(crate) mod disks;
pub(crate) mod events;
mod folded;
pub(crate) mod found;
pub(crate) mod reason;
pub(super) mod status;
pub(super) mod subjects;
pub(super) mod voters;
pub(crate) mod words;
