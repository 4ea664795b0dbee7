//! State of the faults that last for a while.

use crate::random::Random;

/// State of the reachability faults.
#[derive(Debug)]
pub(crate) struct ReachabilityFaults {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
}

impl ReachabilityFaults {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x0D00_25E5) }
    }
}

/// State of the relay faults.
#[derive(Debug)]
pub(crate) struct Relays {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
    /// A machine that is not restarted.
    pub(crate) dead: Option<usize>,
    /// Time of the last direct heartbeat to a coordinator.
    pub(crate) last_direct: u64,
    /// Rounds in which no coordinator answered a member's relay, and no relay helped.
    pub(crate) unhelped: u64,
    /// Of these, the ones in which it contacted a coordinator.
    pub(crate) asked: u64,
}

impl Relays {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x0CA2_21E5), dead: None, last_direct: 0, unhelped: 0, asked: 0 }
    }
}

/// State of the session restarts.
#[derive(Debug)]
pub(crate) struct Restarter {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
}

impl Restarter {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x5E55_1045) }
    }
}

/// State of the engines that refuse reads.
#[derive(Debug)]
pub(crate) struct Engines {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
}

impl Engines {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x0E26_12E5) }
    }
}
