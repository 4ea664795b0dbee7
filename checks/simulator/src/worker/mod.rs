//! Participants: processes of another service that own the partitions of a lease table. In some seeds only, drawn from
//! generators of their own, so that nodes of other seeds stay the same.
//!
//! | file | content |
//! |---|---|
//! | `mod` | the machines and their processes |
//! | `session` | registration, heartbeats, polls and reports; the service's callbacks and their ends |
//! | `faults` | faults, and operators' orders on leases |

mod faults;
mod session;
pub(crate) mod workers;

use crate::clock::Clock;
use crate::event::Event;
use crate::mutant::broken_member;
use crate::worker::workers::{Process, TABLE, Worker};
use crate::world::World;
use archon_coordinator_core::Command;
use archon_member::{Participation, RegistrationAttempts};
use archon_types::{Epoch, LeaseTiming, Millis, PartitionId, Partitioning, StorageId, TableContent};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

impl World {
    /// Draws whether there are participants, and how many.
    pub(crate) fn add_workers(&mut self) {
        let random = &mut self.workers.random;
        if random.below(3) > 0 {
            return;
        }
        self.workers.partitions = u32::try_from(random.between(1, 6)).unwrap_or(1);
        for number in 0..random.between(2, 4) {
            let clock = Clock::draw(random);
            let settings = self.plan.settings.timing;
            // Some have timing of their own: everything takes twice as long.
            let timing = (random.below(3) == 0).then(|| LeaseTiming {
                heartbeat_ms: settings.heartbeat_ms * 2,
                lease_ms: settings.lease_ms * 2,
                failure_timeout_ms: settings.failure_timeout_ms * 2,
                ..settings
            });
            // A recovery that loses a registration does not know the length of its lease.
            let timing = timing.filter(|_| !self.plan.recovers);
            let (name, process) = (format!("w{number}"), None);
            self.workers.machines.push(Worker { name, clock, timing, process, paused_until: 0, boots: 0 });
        }
        self.coverage.participants += self.workers.machines.len() as u64;
        for worker in 0..self.workers.machines.len() {
            let delay = self.workers.random.between(1, self.plan.unit_ms() * 8);
            self.after(delay, Event::Hire { worker });
        }
        let begin = self.plan.unit_ms() * 4;
        self.after(begin, Event::WorkerFault);
    }

    /// Returns the participant on the machine with this number: those of nodes come first.
    pub(crate) fn worker_at(&self, host: usize) -> Option<usize> {
        host.checked_sub(self.hosts.len()).filter(|worker| *worker < self.workers.machines.len())
    }

    fn machine_of(&self, worker: usize) -> usize {
        self.hosts.len() + worker
    }

    fn worker_now(&self, worker: usize) -> Millis {
        self.workers.machines[worker].clock.at(self.truth)
    }

    /// Starts a process, if none runs.
    pub(crate) fn start_worker(&mut self, worker: usize) {
        self.make_lease_table();
        let (boot_id, storage) = (self.new_boot_id(), StorageId::new(Uuid::from_u128(self.unique())));
        let broken = broken_member(self.mutant);
        let guess = self.workers.random.index(crate::coordinator::quorum::COORDINATORS);
        let guess = self.first_guess(self.machine_of(worker), guess);
        let machine = &mut self.workers.machines[worker];
        if machine.process.is_some() {
            return;
        }
        machine.boots += 1;
        let boot = machine.boots;
        machine.process = Some(Process {
            boot,
            boot_id,
            storage,
            registering: RegistrationAttempts::default(),
            life: None,
            it: Participation::new(broken),
            guess,
            answered: true,
            next_register: Millis::ZERO,
            next_heartbeat: Millis::ZERO,
            next_poll: Millis::ZERO,
            next_reports: Millis::ZERO,
            stopping: false,
            callbacks: Vec::new(),
            held: BTreeSet::new(),
        });
        self.note(|| format!("worker {worker} starts, boot {boot}"));
        self.after(1, Event::Work { worker, boot });
    }

    /// Creates the participants' table, if missing.
    fn make_lease_table(&mut self) {
        if self.quorum.state.table_by_name(TABLE).is_some() {
            return;
        }
        let partitioning = Partitioning::Hash { partitions: self.workers.partitions };
        self.say(Command::CreateTable {
            name: TABLE.to_owned(),
            partitioning,
            replication: 1,
            holds: TableContent::Lease,
        });
    }

    /// As [`Self::make_lease_table`], if there are participants.
    pub(crate) fn make_lease_table_if_any(&mut self) {
        if !self.workers.is_empty() {
            self.make_lease_table();
        }
    }

    /// Kills the process. The coordinators cannot distinguish it from one that hangs, so its view is kept.
    fn kill_worker(&mut self, worker: usize) {
        let machine = &mut self.workers.machines[worker];
        let Some(process) = machine.process.take() else { return };
        machine.paused_until = 0;
        let (name, clock) = (machine.name.clone(), machine.clock);
        self.workers.hanging.push((name, clock, process));
        self.note(|| format!("worker {worker} killed"));
    }

    /// Returns two owners of one partition at this instant, each by its own clock; hanging processes included.
    pub(crate) fn two_owners(&mut self) -> Option<String> {
        let truth = self.truth;
        self.workers.hanging.retain(|(_, clock, process)| process.used(clock.at(truth)).next().is_some());
        let live = self.workers.machines.iter();
        let live = live.filter_map(|machine| Some((&machine.name, machine.clock, machine.process.as_ref()?)));
        let hanging = self.workers.hanging.iter().map(|(name, clock, process)| (name, *clock, process));
        let mut owners: BTreeMap<PartitionId, (&String, Epoch)> = BTreeMap::new();
        for (name, clock, process) in live.chain(hanging) {
            for owned in process.used(clock.at(truth)) {
                if let Some((other, epoch)) = owners.insert(owned.partition, (name, owned.epoch)) {
                    let (partition, own) = (owned.partition, owned.epoch);
                    return Some(format!("{other} owns {partition} in epoch {epoch}, and {name} in epoch {own}"));
                }
            }
        }
        None
    }
}
