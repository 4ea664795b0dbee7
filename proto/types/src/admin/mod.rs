//! Vocabulary of administration: rights, events, plans, reasons, and settings.

pub(crate) mod access;
pub(crate) mod event;
pub(crate) mod facts;
pub(crate) mod finding;
pub(crate) mod moves;
pub(crate) mod open_enum;
pub mod plan;
pub(crate) mod quorum;
pub(crate) mod range_change;
pub(crate) mod reason;
pub(crate) mod role;
pub(crate) mod setting;
pub(crate) mod settings;
pub mod subject;
