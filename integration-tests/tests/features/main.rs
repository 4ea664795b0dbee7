//! Backups, export and import, and participants on clusters of real processes.

mod backup;
mod backup_since;
mod kv_rows;
mod many_participants;
mod participants;

/// The program under test.
pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
