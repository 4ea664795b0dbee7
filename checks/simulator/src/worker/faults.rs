//! Faults of participants, operators' orders on leases, and their end.

use crate::event::{Event, Proposal};
use crate::network::{End, NetworkCut};
use crate::worker::workers::TABLE;
use crate::world::World;
use archon_coordinator_core::{Bar, Command, Order, check_order};
use archon_types::{Epoch, Millis, NodeGoal, NodeId, Partition, PartitionId, PartitionStatus};

impl World {
    /// Injects one fault; schedules the next one.
    pub(crate) fn worker_fault(&mut self) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let random = &mut self.workers.random;
        let delay = random.between(1, unit * 10);
        let (kind, worker) = (random.below(100), random.index(self.workers.machines.len()));
        let lasts = random.between(1, unit * 30);
        self.after(delay, Event::WorkerFault);
        match kind {
            0..=13 => {
                self.coverage.participants_killed += 1;
                self.kill_worker(worker);
                self.after(lasts, Event::Hire { worker });
            }
            14..=29 => {
                self.note(|| format!("worker {worker} paused for {lasts}"));
                self.workers.machines[worker].paused_until = self.truth + lasts;
            }
            30..=37 => self.stop_worker(worker),
            38..=53 => self.cut_worker_off(worker, kind, lasts),
            54..=75 => self.worker_drops(worker),
            76..=86 => self.set_worker_goal(worker),
            _ => self.order_of_leases(worker, lasts),
        }
    }

    fn stop_worker(&mut self, worker: usize) {
        let now = self.worker_now(worker);
        let Some(process) = &mut self.workers.machines[worker].process else { return };
        process.stopping = true;
        process.it.stop(now);
    }

    /// Blocks its traffic to the coordinators, from them, or both.
    fn cut_worker_off(&mut self, worker: usize, kind: u64, lasts: u64) {
        let own = vec![End::Host(self.machine_of(worker))];
        let far = self.quorum.ends();
        let (since, until) = (self.truth, self.truth + lasts);
        self.note(|| format!("worker {worker} is cut off until {until}"));
        if !kind.is_multiple_of(3) {
            self.network.cut(NetworkCut { from: own.clone(), to: far.clone(), since, until });
        }
        if kind % 3 != 1 {
            self.network.cut(NetworkCut { from: far, to: own, since, until });
        }
    }

    /// Makes the service drop a partition.
    fn worker_drops(&mut self, worker: usize) {
        let now = self.worker_now(worker);
        let Some(process) = &mut self.workers.machines[worker].process else { return };
        let owned: Vec<PartitionId> = process.it.holdings().owned(now).map(|of| of.partition).collect();
        let Some(partition) = self.workers.random.pick(&owned) else { return };
        if let Some(process) = &mut self.workers.machines[worker].process {
            self.coverage.leases_dropped += u64::from(process.it.drop(partition, now));
        }
    }

    fn member_of(&self, worker: usize) -> Option<NodeId> {
        let name = &self.workers.machines[worker].name;
        self.quorum.state.participants.named(name).next().map(|row| row.node.id)
    }

    fn set_worker_goal(&mut self, worker: usize) {
        let goals = [NodeGoal::Serve, NodeGoal::Serve, NodeGoal::Cordon, NodeGoal::Drain];
        let goal = self.workers.random.pick(&goals).unwrap_or(NodeGoal::Serve);
        let Some(node) = self.member_of(worker) else { return };
        self.say(Command::SetNode { node, goal, if_nodes: None });
    }

    fn order_of_leases(&mut self, worker: usize, lasts: u64) {
        let state = &self.quorum.state;
        let Some(table) = state.table_by_name(TABLE) else { return };
        let rows: Vec<(PartitionId, Epoch)> =
            state.partitions.of_table(table.id).map(|row| (row.id, row.epoch)).collect();
        let Some((partition, epoch)) = self.workers.random.pick(&rows) else { return };
        let Some(member) = self.member_of(worker) else { return };
        let bar = Bar::Partition(partition);
        let order = match self.workers.random.below(5) {
            0 | 1 => Order::Bump { partition, epoch },
            2 if state.is_offline(partition) => Order::Online { partition },
            2 => Order::Offline { partition },
            3 if state.bars(partition, member) => Order::Unbar { bar, member },
            3 => Order::Bar { bar, member },
            _ => Order::Maintain { member, until: Millis::new(self.truth + lasts) },
        };
        if let Ok(Some(command)) = check_order(state, order, "") {
            self.coverage.orders += 1;
            self.say(command);
        }
    }

    /// Sends an operator's command to the leading coordinator.
    pub(crate) fn say(&mut self, command: Command) {
        let Some(leader) = self.quorum.leader else { return };
        let Some(session) = &self.quorum.coordinators[leader].session else { return };
        let term = session.term.number();
        self.propose(leader, Proposal { term, commands: vec![command], reply: None });
    }

    /// Ends the faults of participants: stopped ones start again.
    pub(crate) fn heal_workers(&mut self) {
        for worker in 0..self.workers.machines.len() {
            self.workers.machines[worker].paused_until = self.truth;
            self.after(1, Event::Hire { worker });
        }
    }

    /// Returns what participants and their table still lack; `None` once they have converged.
    pub(crate) fn missing_leases(&self) -> Option<String> {
        if self.workers.is_empty() {
            return None;
        }
        let state = &self.quorum.state;
        let Some(table) = state.table_by_name(TABLE) else { return Some("the lease table is not made".to_owned()) };
        let mut counts = Vec::new();
        for (worker, machine) in self.workers.machines.iter().enumerate() {
            let Some(process) = machine.process.as_ref().filter(|process| !process.stopping) else {
                return Some(format!("worker {worker} does not run"));
            };
            let Some((node, _)) = process.life.filter(|(node, _)| state.is_active(*node)) else {
                return Some(format!("worker {worker} is not active"));
            };
            counts.push(state.partitions.leaders_on(node));
        }
        let missing = state.partitions.of_table(table.id).find_map(|row| self.missing_lease(row));
        let uneven = counts.iter().max().zip(counts.iter().min()).filter(|(most, least)| *most - *least > 1);
        let listed = || {
            let row = state.former_leaders.iter().find(|former| state.is_lease(former.partition.table))?;
            Some(format!("{row:?} is listed still"))
        };
        missing.or_else(|| uneven.map(|_| format!("uneven: {counts:?}"))).or_else(listed)
    }

    fn missing_lease(&self, row: &Partition) -> Option<String> {
        let owner = row.leader_placement().map(|copy| copy.node);
        let mut processes =
            self.workers.machines.iter().filter_map(|machine| Some((machine, machine.process.as_ref()?)));
        let process = processes.find(|(_, process)| process.life.map(|(node, _)| node) == owner);
        let owned = process.is_some_and(|(machine, process)| {
            let now = machine.clock.at(self.truth);
            process.it.holdings().owned(now).any(|of| (of.partition, of.epoch) == (row.id, row.epoch))
        });
        let well = row.status == PartitionStatus::Online && row.placements.len() == 1 && owned;
        (!well).then(|| format!("{} is not owned as it should be ({owned}): {row:?}", row.id))
    }
}
