//! State of the simulated operators.

use crate::coordinator::quorum::COORDINATORS;
use crate::host::disk::Disk;
use crate::operators::upgrade::range;
use crate::random::Random;
use archon_coordinator_core::Command;
use archon_types::{PartitionId, ProtocolRange};
use std::collections::BTreeMap;

/// The operator of the quorum, and the coordinator addresses that nodes and participants know.
#[derive(Debug)]
pub(crate) struct Changer {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
    /// Last coordinator addresses sent to each machine.
    pub(crate) named: BTreeMap<usize, Vec<String>>,
    /// Counter of addresses.
    pub(crate) addresses: u64,
}

impl Changer {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x0057_4054), named: BTreeMap::new(), addresses: 0 }
    }

    /// Records the coordinator addresses sent to a machine.
    pub(crate) fn note_named(&mut self, machine: usize, named: Vec<String>) {
        self.named.insert(machine, named);
    }
}

/// State of the operator.
#[derive(Debug)]
pub(crate) struct Operator {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
    /// Start of the unavailability of partitions without a possible leader.
    pub(crate) since: BTreeMap<PartitionId, u64>,
    /// End of the last situation created on purpose.
    pub(crate) until: u64,
}

impl Operator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0xACCE), since: BTreeMap::new(), until: 0 }
    }
}

/// The operator that recovers the coordinators.
#[derive(Debug)]
pub(crate) struct Recoverer {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
    pub(crate) begun: u32,
    /// The right directory of a machine that runs on an older copy of it.
    pub(crate) aside: Option<(usize, Box<Disk>)>,
}

impl Recoverer {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x4EC0_7E4D), begun: 0, aside: None }
    }
}

/// The operator that upgrades the cluster.
#[derive(Debug)]
pub(crate) struct Upgrader {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
    /// The versions of the coordinators.
    pub(crate) coordinators: [ProtocolRange; COORDINATORS],
    /// A coordinator's decision in a term, about to be proposed.
    pub(crate) decided: Option<(usize, u64, Command)>,
}

impl Upgrader {
    pub(crate) fn new(seed: u64) -> Self {
        let coordinators = [range(1, 2); COORDINATORS];
        Self { random: Random::new(seed ^ 0x0B64_ADE5), coordinators, decided: None }
    }
}
