//! The processes of a service that owns leases.

use crate::clock::Clock;
use crate::random::Random;
use archon_member::{Acquisition, Participation, RegistrationAttempts};
use archon_types::{BootId, Epoch, Incarnation, LeaseTiming, Millis, NodeId, PartitionId, StorageId};
use std::collections::{BTreeMap, BTreeSet};

/// The table that they serve.
pub(crate) const TABLE: &str = "jobs";

/// All participants, and the record of ownership.
#[derive(Debug)]
pub(crate) struct Workers {
    /// Separate generator for features of some seeds, so that other seeds do not change.
    pub(crate) random: Random,
    pub(crate) machines: Vec<Worker>,
    /// Processes that hang while others were started in their place: on waking, one would trust its lease.
    pub(crate) hanging: Vec<(String, Clock, Process)>,
    pub(crate) partitions: u32,
    /// Last incarnation that acquired each partition, and its epoch.
    pub(crate) latest: BTreeMap<PartitionId, (Epoch, NodeId, Incarnation)>,
}

/// A machine of the service.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) timing: Option<LeaseTiming>,
    pub(crate) process: Option<Process>,
    pub(crate) paused_until: u64,
    pub(crate) boots: u64,
}

/// A process of the service, with the library in it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) boot: u64,
    pub(crate) boot_id: BootId,
    pub(crate) storage: StorageId,
    pub(crate) registering: RegistrationAttempts,
    pub(crate) life: Option<(NodeId, Incarnation)>,
    pub(crate) it: Participation,
    /// The coordinator that probably leads.
    pub(crate) guess: usize,
    /// The last heartbeat was answered.
    pub(crate) answered: bool,
    pub(crate) next_register: Millis,
    pub(crate) next_heartbeat: Millis,
    pub(crate) next_poll: Millis,
    pub(crate) next_reports: Millis,
    pub(crate) stopping: bool,
    pub(crate) callbacks: Vec<Callback>,
    /// Partitions in the service's view: acquired, and neither released nor lost yet. It checks before each use.
    pub(crate) held: BTreeSet<Acquisition>,
}

/// A running callback of the service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    pub(crate) of: Acquisition,
    pub(crate) acquires: bool,
    /// In true time.
    pub(crate) ends_at: u64,
}

impl Workers {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed ^ 0x10B5),
            machines: Vec::new(),
            hanging: Vec::new(),
            partitions: 0,
            latest: BTreeMap::new(),
        }
    }

    /// Sets the coordinator that a participant contacts next.
    pub(crate) fn turn_to(&mut self, worker: usize, coordinator: usize) {
        let machine = self.machines.get_mut(worker);
        machine
            .and_then(|machine| machine.process.as_mut())
            .into_iter()
            .for_each(|process| process.guess = coordinator);
    }

    /// Returns the number of machines.
    pub(crate) fn count(&self) -> usize {
        self.machines.len()
    }

    /// Returns the end of a pause of a participant's process.
    pub(crate) fn paused_until(&self, worker: usize) -> Option<u64> {
        self.machines.get(worker).map(|machine| machine.paused_until)
    }

    /// Returns true if this world has none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }
}

impl Process {
    /// Returns what the service may use at this instant.
    pub(crate) fn used(&self, now: Millis) -> impl Iterator<Item = Acquisition> + use<'_> {
        let holdings = self.it.holdings();
        self.held.iter().copied().filter(move |of| holdings.check(*of, now))
    }
}
