//! Work of a coordinator while it leads.

mod announcements;
pub(crate) mod confirm;
pub(crate) mod control;
mod event_log;
pub(crate) mod load;
mod polls;
pub(crate) mod session;
mod watchdog;
