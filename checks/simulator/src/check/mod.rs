//! Properties that hold at every step, one per file. The letters are those of the design. The rooms' own checks
//! (`archon_replica::invariants`, `archon_coordinator_core::check`) run here as they are.

mod by_key;
pub(crate) mod checks;
mod convergence;
mod damage;
pub(crate) mod door_checks;
mod doors;
mod dropped;
mod era;
mod exactly_once;
pub(crate) mod key_move;
mod key_moves;
mod linearizable;
mod live_set;
mod merged;
mod one_leader;
pub(crate) mod operations;
mod quorum;
pub(crate) mod violation;

pub(crate) use era::PartitionCheck;
pub(crate) use linearizable::History;

impl crate::world::World {
    /// Checks every property that must hold after an event.
    pub(crate) fn check(&mut self) {
        let (sets, leases) = self.checks.take_changed();
        if sets {
            self.checks.damage.look(&self.quorum.state);
            let checked = self.check_live_sets();
            self.judge(checked);
        }
        if leases {
            let checked = self.check_one_leader();
            self.judge(checked);
        }
    }
}
