//! Coordinators on real processes: membership, failures, recovery and snapshots.

mod coordinator_copies;
mod coordinator_disks;
mod coordinator_failures;
mod quorum_members;
mod quorum_recovery;
mod quorum_snapshot;
mod states_differ;
mod two_recoveries;

/// The program under test.
pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
