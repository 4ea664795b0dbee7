//! The command line, the console, metrics, service managers and runbooks on clusters of real processes.

mod administration;
mod console;
mod console_access;
mod console_page;
mod doctor;
mod json_contract;
mod measuring;
mod metrics;
mod monitoring;
mod operator;
mod orders;
mod runbooks;
mod settings;
mod slow_operations;
mod systemd;
mod top;
mod traces;
mod tutorial;
mod upgrade;

/// The program under test.
pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
