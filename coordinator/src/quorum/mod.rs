//! The quorum around Raft: changes of its members, addresses, timing, protocol, and comparison of states.

pub(crate) mod found_elsewhere;
pub(crate) mod other_histories;
pub(crate) mod own_address;
pub(crate) mod protocol_keeper;
pub(crate) mod quorum_changes;
pub(crate) mod quorum_monitor;
pub(crate) mod state_checks;
pub(crate) mod timing;
pub(crate) mod upgrades;
