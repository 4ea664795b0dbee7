//! Loss of the coordinators' majority: an operator recovers from an older state, of a survivor or a file, while the
//! nodes live on (rules 60 to 62).

use crate::event::{Event, Proposal};
use crate::world::World;
use archon_coordinator_core::{ClusterState, Command, Coordinator, begin_generation, check_settle};
use archon_types::{GenerationKey, Millis, StorageId};
use uuid::Uuid;

/// Maximum number of recoveries in a run.
const RECOVERIES_MAX: u32 = 2;

impl World {
    /// Starts a new generation with the remaining log.
    pub(crate) fn recover_quorum(&mut self) {
        let unit = self.plan.unit_ms();
        let delay = self.recoverer.random.between(unit * 5, unit * 80);
        self.after(delay, Event::Recover);
        if self.healing || self.recoverer.begun >= RECOVERIES_MAX || self.quorum.state.recovery.is_some() {
            return;
        }
        let Some((mut state, lost)) = self.left_of_the_log() else { return };
        let generation = self.quorum.state.generation + 1;
        let storage = StorageId::new(Uuid::from_u128(u128::from(generation)));
        let founder = (1, Coordinator { address: "c1:7000".to_owned(), storage, voter: true });
        let key = GenerationKey::new(Uuid::from_u128(u128::from(self.recoverer.begun) + 1));
        if begin_generation(&mut state, (generation, key), Millis::new(self.truth), founder).is_err() {
            return; // Nothing is founded yet.
        }
        self.recoverer.begun += 1;
        self.coverage.recoveries += 1;
        self.coverage.recoveries_behind += u64::from(lost > 0);
        self.note(|| format!("generation {generation} begins without {lost} entries"));
        self.quorum.restart_with(state);
        self.set_back_in_recovery();
        let delay = self.recoverer.random.between(1, unit * 10);
        self.after(delay, Event::Elect);
        self.after(delay, Event::RecoveryLook);
    }

    /// Copies the directory of a machine, and restarts it, so that the copy is of an earlier incarnation.
    pub(crate) fn copy_disk_now_and_then(&mut self) {
        let unit = self.plan.unit_ms();
        let delay = self.recoverer.random.between(unit, unit * 10);
        if self.healing || self.recoverer.begun > 0 {
            return;
        }
        self.after(delay, Event::CopyDisk);
        let host = self.recoverer.random.index(self.hosts.len());
        let machine = &self.hosts[host];
        // A copy from before the first registration has no incarnation to compare.
        if machine.process.is_none() || machine.snapshot.is_some() || machine.disk.incarnation.is_none() {
            return;
        }
        self.copy_disk(host);
        self.kill(host);
        let down = self.recoverer.random.between(1, unit * 5);
        self.after(down, Event::Restart { host });
    }

    /// Stops a machine as the first recovery begins, and starts it on an older copy of its directory. The coordinators
    /// can know that the copy is older: they know a later incarnation.
    fn set_back_in_recovery(&mut self) {
        if !self.plan.sets_back || self.recoverer.begun != 1 {
            return;
        }
        let is_older = |host: &usize| {
            let host = &self.hosts[*host];
            let activated = self.quorum.state.node_by_storage(host.disk.storage).and_then(|row| row.activated);
            let own = host.snapshot.as_ref().filter(|copy| copy.storage == host.disk.storage);
            own.is_some_and(|copy| copy.incarnation.is_some() && copy.incarnation < activated)
        };
        let hosts: Vec<usize> = (0..self.hosts.len()).filter(is_older).collect();
        let Some(host) = self.recoverer.random.pick(&hosts) else { return };
        let Some(copy) = self.hosts[host].snapshot.take() else { return };
        self.coverage.older_in_recovery += 1;
        self.kill(host);
        self.note(|| format!("host {host} is started on an older copy of its directory"));
        self.checks.set_back(&copy);
        let right = std::mem::replace(&mut self.hosts[host].disk, *copy);
        self.recoverer.aside = Some((host, Box::new(right)));
        let unit = self.plan.unit_ms();
        let delay = self.recoverer.random.between(1, unit * 5);
        self.after(delay, Event::Restart { host });
        let delay = self.recoverer.random.between(unit * 5, unit * 60);
        self.after(delay, Event::RightDirectory);
    }

    /// Stops a machine that runs on an older copy of its directory, and starts it on the right one.
    pub(crate) fn right_directory(&mut self) {
        let Some((host, right)) = self.recoverer.aside.take() else { return };
        self.coverage.right_in_recovery += u64::from(self.quorum.state.recovery.is_some());
        self.kill(host);
        self.note(|| format!("host {host} is started on its right directory"));
        self.hosts[host].disk = *right;
        let delay = self.recoverer.random.between(1, self.plan.unit_ms() * 5);
        self.after(delay, Event::Restart { host });
    }

    /// Returns the state of some survivor, and the number of entries it lacks.
    fn left_of_the_log(&mut self) -> Option<(ClusterState, u64)> {
        let entries = self.quorum.entries();
        let random = &mut self.recoverer.random;
        let lost = match random.below(4) {
            0 => 0,
            1 => random.between(1, 4),
            2 => random.between(1, 30),
            _ => random.between(1, 300),
        };
        let lost = lost.min(entries);
        let state = self.quorum.state_without(lost);
        // The services of the world create their table once.
        let founded = state.lease_tables().next().is_some();
        founded.then_some((state, lost))
    }

    /// Checks the recovery's progress, and accepts its result once every machine was heard.
    pub(crate) fn recovery_looks(&mut self) {
        let delay = self.recoverer.random.between(1, self.plan.unit_ms() * 2);
        if self.quorum.state.recovery.is_none() {
            return;
        }
        self.after(delay, Event::RecoveryLook);
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        let (Some(session), Some(recovery)) = (&coordinator.session, &coordinator.state.recovery) else { return };
        // Nothing else runs: the simulated quorums follow each other.
        if coordinator.state.stands_by() {
            let term = session.term.number();
            self.propose(leader, Proposal { term, commands: vec![Command::TakeOver], reply: None });
            return;
        }
        let heard = |storage: StorageId| {
            let node = coordinator.state.node_by_storage(storage).map(|row| row.node.id);
            node.and_then(|node| recovery.inventories.get(&node)).is_some_and(|inventory| inventory.is_complete())
        };
        // The operator waits for the right directory, and accepts no loss caused by the older copy.
        if self.recoverer.aside.is_some() || recovery.inventories.values().any(|inventory| inventory.older) {
            return;
        }
        // Only the operator knows of a machine that registered after the remaining log.
        if recovery.accepted || !self.hosts.iter().all(|host| heard(host.disk.storage)) {
            return;
        }
        let Ok(Some(command)) = check_settle(&coordinator.state, true) else { return };
        let term = session.term.number();
        debug_assert!(matches!(command, Command::AcceptRecovery));
        self.propose(leader, Proposal { term, commands: vec![command], reply: None });
    }
}
