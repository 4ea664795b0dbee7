//! An operator that does not wait indefinitely: if a partition has no in-sync copy on a live node for long, another copy
//! is made to lead, or the partition begins empty (rule 23).

use crate::coordinator::member::host_of;
use crate::event::{Event, Proposal};
use crate::network::{End, NetworkCut};
use crate::world::World;
use archon_coordinator_core::{Command, check_force_leader};
use archon_types::{NodeId, Partition, PartitionId, PartitionStatus};

impl World {
    /// Runs the operator's check, and schedules the next one; also after the faults.
    pub(crate) fn operator_looks(&mut self) {
        let unit = self.plan.unit_ms();
        let delay = self.operator.random.between(unit, unit * 4);
        self.after(delay, Event::Operator);
        if !self.healing && self.truth >= self.operator.until {
            self.cut_followers_off();
        }
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        let Some(session) = &coordinator.session else { return };
        let (state, now) = (&coordinator.state, coordinator.clock.at(self.truth));
        let stuck = |row: &&Partition| {
            row.status != PartitionStatus::Unassigned && !row.live().any(|live| state.is_alive(live.node))
        };
        let stuck: Vec<PartitionId> = state.data_rows().filter(stuck).map(|row| row.id).collect();
        let since = &mut self.operator.since;
        since.retain(|partition, _| stuck.contains(partition));
        let grace = self.plan.settings.timing.failure_timeout_ms * 2 + unit * 10;
        let late = |partition: &&PartitionId| self.truth >= *since.entry(**partition).or_insert(self.truth) + grace;
        let late: Vec<PartitionId> = stuck.iter().filter(late).copied().collect();
        let forced =
            late.into_iter().filter_map(|id| check_force_leader(state, session.term.liveness(), now, id, None).ok());
        let commands: Vec<Command> = forced.map(|forced| forced.command).collect();
        let term = session.term.number();
        for command in commands {
            self.propose(leader, Proposal { term, commands: vec![command], reply: None });
        }
    }

    /// Stops a follower until it is out of sync. Then it comes back, and all in-sync copies stop, or are cut off with
    /// some of their clients.
    fn cut_followers_off(&mut self) {
        let settings = &self.plan.settings;
        let (unit, timeout) = (self.plan.unit_ms(), settings.timing.failure_timeout_ms);
        let silent = settings.replication_timeout_ms * 2 + unit * 2;
        let rows: Vec<Vec<NodeId>> =
            self.quorum.state.data_rows().map(|row| row.live().map(|live| live.node).collect()).collect();
        let rows: Vec<&Vec<NodeId>> = rows.iter().filter(|nodes: &&Vec<NodeId>| nodes.len() > 2).collect();
        self.operator.until = self.truth + silent + timeout * 6 + unit * 40;
        let Some(nodes) = self.operator.random.pick(&rows) else { return };
        let host = |node: &NodeId| host_of(&self.quorum.state.node(*node)?.node.address);
        let mut others: Vec<usize> = nodes.iter().filter_map(host).collect();
        let left = others.swap_remove(self.operator.random.index(others.len()));
        let all: Vec<End> = (0..self.hosts.len()).filter(|other| *other != left).map(End::Host).collect();
        self.note(|| format!("host {left} is to be left alone by {others:?}"));
        self.part(&[End::Host(left)], &all, (0, silent));
        let away = timeout * 4 + self.operator.random.between(unit * 12, unit * 40);
        if self.operator.random.below(3) == 0 {
            return self.after(silent, Event::PowerOff { hosts: others, away });
        }
        let own: Vec<End> = others.into_iter().map(End::Host).collect();
        let coordinators = self.quorum.ends().into_iter();
        let far: Vec<End> = coordinators.chain([End::Host(left)]).collect();
        let (since, until) = (self.truth + silent, self.truth + silent + away);
        self.network.cut(NetworkCut { from: own.clone(), to: far.clone(), since, until });
        self.network.cut(NetworkCut { from: far, to: own, since, until });
    }

    /// Cuts the power of these machines at once; they come back after a while.
    pub(crate) fn power_off_all(&mut self, hosts: &[usize], away: u64) {
        if self.healing {
            return;
        }
        for host in hosts {
            self.coverage.power_losses += 1;
            self.power_off(*host);
            let back = self.operator.random.between(away, away * 2);
            self.after(back, Event::Restart { host: *host });
        }
    }
}
