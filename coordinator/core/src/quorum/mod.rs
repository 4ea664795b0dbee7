//! The quorum: its members and their changes, the protocol, and recovery from less than a majority.

pub(crate) mod coordinators;
pub(crate) mod recovery;
pub(crate) mod upgrade;
