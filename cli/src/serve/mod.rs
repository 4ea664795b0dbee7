//! Verbs that run a process: settings, logs to standard error, signals, graceful stop.

pub(crate) mod file;
mod files;
mod log;
mod log_queue;
mod run;
mod service_manager;
pub(crate) mod settings;
#[cfg(test)]
mod settings_tests;
mod worker;

pub(crate) use run::{coordinator, node, other_address, participant};
pub(crate) use settings::{allowed, transport};
