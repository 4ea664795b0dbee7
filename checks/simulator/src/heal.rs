//! End of a run: faults stop, and everything must converge in bounded time.

use crate::check::violation::Violation;
use crate::event::{Event, Proposal};
use crate::world::World;
use archon_coordinator_core::Command;
use archon_types::{NodeGoal, PartitionId, PartitionStatus};
use std::collections::BTreeMap;

/// Maximum time to converge, in milliseconds: the longest back-off of a leader's requests (30 s), the time-out with a
/// hand-over (10 s at most), and a margin.
const HEAL_MS: u64 = 150_000;
const LOOK_MS: u64 = 100;

impl World {
    /// Stops all faults: everything must converge and serve.
    pub(crate) fn heal(&mut self) {
        self.healing = true;
        self.note(|| "faults cease");
        self.network.heal();
        let truth = self.truth;
        self.quorum.down_until = 0;
        self.quorum.slow_until = 0;
        for coordinator in &mut self.quorum.coordinators {
            coordinator.paused_until = coordinator.paused_until.min(truth);
            coordinator.isolated = None;
        }
        self.right_directory();
        self.heal_quorum();
        self.after(50, Event::Elect);
        self.upgrade_everybody();
        self.one_stays_away();
        self.open_doors();
        self.open_engines();
        for host in 0..self.hosts.len() {
            self.hosts[host].paused_until = truth;
            self.hosts[host].deaf_until = truth;
            self.after(1, Event::Restart { host });
        }
        self.heal_workers();
        self.until("the quorum", |world| {
            world.mend_quorum();
            world.missing_in_quorum()
        });
        self.notice_the_dead();
        self.until("the coordinator's state", |world| {
            world.serve_again();
            world.missing_in_state()
        });
        self.until("the protocol", |world| world.missing_protocol());
        self.until("clients of dropped tables", |world| {
            world.serve_again();
            world.uninformed_client()
        });
        self.until("the owners of leases", |world| {
            world.serve_again();
            world.missing_leases()
        });
        let before = self.checks.answered.clone();
        self.until("answers of every partition", |world| {
            world.serve_again();
            world.missing_answers(&before)
        });
        self.look_at_doors();
        self.checks.quiet = true;
        self.until("the nodes", |world| {
            world.serve_again();
            world.missing_in_state().or_else(|| world.missing_on_nodes()).or_else(|| world.left_over())
        });
        if self.violation.is_none()
            && let Some(detail) = self.differing_rows()
        {
            self.judge(Err(Violation::Prefix { detail }));
        }
        self.look_at_the_burden();
    }

    fn until(&mut self, what: &str, missing: impl FnMut(&mut Self) -> Option<String>) {
        self.within(HEAL_MS, what, missing);
    }

    pub(crate) fn within(&mut self, millis: u64, what: &str, mut missing: impl FnMut(&mut Self) -> Option<String>) {
        let give_up = self.truth + millis;
        while self.violation.is_none() {
            let Some(still) = missing(self) else { return };
            if self.truth >= give_up {
                let detail = format!("after {millis} ms without faults, of {what}: {still}");
                return self.judge(Err(Violation::NoConvergence { detail }));
            }
            self.run(self.truth + LOOK_MS);
        }
    }

    /// Reverts the operators' orders on nodes.
    fn serve_again(&mut self) {
        self.mend_quorum();
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        let Some(session) = &coordinator.session else { return };
        let term = session.term.number();
        let other = |goal: NodeGoal| goal != NodeGoal::Serve;
        let nodes: Vec<_> =
            coordinator.state.members().filter(|row| other(row.node.goal)).map(|row| row.node.id).collect();
        let if_controls = coordinator.state.controls_version;
        let reversal = coordinator.state.controls.reversals().next();
        let order = reversal.map(|order| Command::Control { if_controls, order, why: String::new() });
        let serve = nodes.into_iter().map(|node| Command::SetNode { node, goal: NodeGoal::Serve, if_nodes: None });
        let commands: Vec<Command> = order.into_iter().chain(serve).collect();
        if !commands.is_empty() {
            self.propose(leader, Proposal { term, commands, reply: None });
        }
    }

    fn missing_answers(&self, before: &BTreeMap<PartitionId, u64>) -> Option<String> {
        let served = self.quorum.state.data_rows().filter(|row| row.status == PartitionStatus::Online);
        served.map(|row| row.id).find_map(|partition| {
            let answered = |of: &BTreeMap<PartitionId, u64>| of.get(&partition).copied().unwrap_or(0);
            let new = answered(&self.checks.answered) > answered(before);
            (!new).then(|| format!("{partition} has answered nobody"))
        })
    }
}
