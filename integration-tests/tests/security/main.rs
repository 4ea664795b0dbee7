//! Certificates, access rights and the audit trail on clusters of real processes.

mod access;
mod agent_tls;
mod audit;
mod certificates;
mod refused;
mod tls;
mod weights;
mod withdrawn;

/// The program under test.
pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
