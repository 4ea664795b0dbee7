//! The coordinators lose their majority: somebody begins anew with an older state, as a survivor or a file has it, while the nodes
//! live on (rules 60 to 62).

use crate::event::{Event, Proposal};
use crate::random::Random;
use crate::world::World;
use archon_coordinator_core::{ClusterState, Command, Coordinator, begin_generation, check_settle};
use archon_types::{GenerationKey, Millis, StorageId};
use uuid::Uuid;

/// Most recoveries in a run.
const RECOVERIES_MAX: u32 = 2;

/// Whoever recovers the coordinators.
#[derive(Debug)]
pub(crate) struct Recoverer {
    /// For what only some seeds have, so that the others do not change.
    random: Random,
    begun: u32,
}

impl Recoverer {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed ^ 0x4EC0_7E4D), begun: 0 }
    }
}

impl World {
    /// A new generation begins with what is left of the log.
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
        let delay = self.recoverer.random.between(1, unit * 10);
        self.after(delay, Event::Elect);
        self.after(delay, Event::RecoveryLook);
    }

    /// The state as some survivor has it, and how many entries it lacks.
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
        // The services of the world make their table once.
        let founded = state.lease_tables().next().is_some();
        founded.then_some((state, lost))
    }

    /// An operator looks how the recovery goes, and accepts what it says once every machine was heard.
    pub(crate) fn recovery_looks(&mut self) {
        let delay = self.recoverer.random.between(1, self.plan.unit_ms() * 2);
        if self.quorum.state.recovery.is_none() {
            return;
        }
        self.after(delay, Event::RecoveryLook);
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        let (Some(session), Some(recovery)) = (&coordinator.session, &coordinator.state.recovery) else { return };
        let heard = |storage: StorageId| {
            let node = coordinator.state.node_by_storage(storage).map(|row| row.node.id);
            node.and_then(|node| recovery.inventories.get(&node)).is_some_and(|inventory| inventory.is_complete())
        };
        // A machine that registered after what is left of the log is known to its operator alone.
        if recovery.accepted || !self.hosts.iter().all(|host| heard(host.disk.storage)) {
            return;
        }
        let Ok(Some(command)) = check_settle(&coordinator.state, true) else { return };
        let term = session.term.number();
        debug_assert!(matches!(command, Command::AcceptRecovery));
        self.propose(leader, Proposal { term, commands: vec![command], reply: None });
    }
}
