//! Findings for people: status, alerts, reasons and events.

mod alert_texts;
pub(super) mod alerts;
pub(super) mod certificates;
pub(super) mod describe;
pub(crate) mod events;
mod folded;
pub(super) mod status;
pub(super) mod subjects;
pub(super) mod voters;
