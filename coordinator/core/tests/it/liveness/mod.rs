//! Failures of nodes: detection, elections and unavailability.

pub(crate) mod doors;
mod failover;
mod forced;
mod isolated_leaders;
mod relays;
mod unserved;
