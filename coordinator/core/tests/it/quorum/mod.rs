//! Coordinators: members of the quorum, recovery and protocol.

mod histories;
mod members;
pub(crate) mod mutants;
mod recovered_directories;
pub(crate) mod recovery;
pub(crate) mod upgrade;
