//! Faults, drawn one after the other during the fault period.

pub(crate) mod doors;
mod engines;
pub(crate) mod parts;
mod quorum_faults;
pub(crate) mod relays;
pub(crate) mod restarts;
mod strays;
mod themes;

use crate::event::{Event, Proposal};
use crate::host::disk::Disk;
use crate::network::{End, NetworkCut};
use crate::scenario::Theme;
use crate::world::World;
use archon_coordinator_core::{Command, Goal, plan};
use archon_types::{NodeGoal, NodeStatus, PartitionStatus, Partitioning, TableContent};

impl World {
    pub(crate) fn next_fault(&mut self) {
        if self.healing {
            return;
        }
        if self.plan.theme == Theme::Young
            && self.quorum.state.data_rows().any(|row| row.status == PartitionStatus::Unassigned)
        {
            // Starts with the first assignment.
            return self.after(2, Event::Fault);
        }
        if self.plan.theme == Theme::Young && !self.quorum.state.untouched.is_empty() {
            self.theme_fault();
        }
        let delay = self.random.between(1, self.plan.calm_ms * 2);
        self.after(delay, Event::Fault);
        if self.plan.theme != Theme::Noise && self.random.below(2) == 0 {
            return self.theme_fault();
        }
        let unit = self.plan.unit_ms();
        let host = self.random.index(self.hosts.len());
        match self.random.below(100) {
            0..=13 => {
                self.coverage.kills += 1;
                self.kill(host);
                self.come_back(host);
            }
            14..=18 => {
                self.coverage.power_losses += 1;
                self.power_off(host);
                self.come_back(host);
            }
            19 => {
                self.coverage.power_losses += 1;
                for host in 0..self.hosts.len() {
                    self.power_off(host);
                    self.come_back(host);
                }
            }
            20..=28 => {
                self.coverage.pauses += 1;
                let until = self.truth + self.random.between(unit, unit * 30);
                self.note(|| format!("host {host} paused until {until}"));
                self.hosts[host].paused_until = until;
            }
            29..=33 => {
                self.coverage.stops += 1;
                self.note(|| format!("host {host} is told to stop"));
                self.stop_in_order(host);
            }
            34..=55 => self.cut_network(host),
            56..=61 => self.elect_coordinator(),
            62..=67 => self.trouble_coordinator(),
            68..=69 => {
                self.coverage.quorum_losses += 1;
                let until = self.truth + self.random.between(unit, unit * 40);
                self.note(|| format!("no quorum until {until}"));
                self.quorum.down_until = until;
                self.after(until - self.truth + 1, Event::Elect);
            }
            70..=82 => self.admin(),
            83..=87 => self.hosts[host].wall_off = self.random.below(10_000),
            88..=89 if self.plan.destroys => self.copy_disk(host),
            90..=93 if self.plan.destroys => self.damage_disk(host),
            _ => {}
        }
    }

    pub(crate) fn come_back(&mut self, host: usize) {
        let unit = self.plan.unit_ms();
        let down = match self.random.below(4) {
            0 => self.random.between(unit * 10, unit * 80),
            1 => self.random.between(1, unit),
            _ => self.random.between(unit, unit * 15),
        };
        self.after(down, Event::Restart { host });
    }

    fn cut_network(&mut self, host: usize) {
        self.coverage.partitions_of_network += 1;
        let until = self.truth + self.random.between(self.plan.unit_ms(), self.plan.unit_ms() * 40);
        let own = vec![End::Host(host)];
        let others: Vec<End> = (0..self.hosts.len()).filter(|other| *other != host).map(End::Host).collect();
        let coordinators = self.quorum.ends();
        let clients: Vec<End> = (0..self.clients.len()).map(End::Client).collect();
        let other = self.random.pick(&others).into_iter().collect();
        let far = match self.random.below(6) {
            0 => others,
            1 => other,
            2 => coordinators,
            3 => clients,
            4 => [others, coordinators].concat(),
            _ => [others, coordinators, clients].concat(),
        };
        let direction = self.random.below(4);
        self.note(|| format!("cut until {until}, direction {direction}: {own:?} {far:?}"));
        if direction != 0 {
            self.network.cut(NetworkCut { from: own.clone(), to: far.clone(), since: self.truth, until });
        }
        if direction != 1 {
            self.network.cut(NetworkCut { from: far, to: own, since: self.truth, until });
        }
    }

    /// Stops the leading coordinator, or cuts it off from the others; they elect another after a while.
    fn trouble_coordinator(&mut self) {
        let Some(leader) = self.quorum.leader else { return };
        let unit = self.plan.unit_ms();
        let until = self.truth + self.random.between(unit * 2, unit * 40);
        let pause = self.random.below(2) == 0;
        self.note(|| format!("coordinator {leader} is away until {until}, paused: {pause}"));
        let since = self.truth;
        let own = &mut self.quorum.coordinators[leader];
        if pause {
            own.paused_until = until;
        } else {
            own.isolated = Some((since, until));
        }
        let delay = self.random.between(unit, unit * 8);
        self.after(delay, Event::Elect);
    }

    pub(crate) fn admin(&mut self) {
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        let Some(session) = &coordinator.session else { return };
        let term = session.term.number();
        let nodes: Vec<_> = coordinator.state.nodes.keys().copied().collect();
        let command = match self.random.below(12) {
            0 => Command::CancelPlan,
            1..=3 => {
                let Some(node) = self.random.pick(&nodes) else { return };
                let goals = [NodeGoal::Serve, NodeGoal::Cordon, NodeGoal::Drain];
                let goal = self.random.pick(&goals).unwrap_or(NodeGoal::Serve);
                Command::SetNode { node, goal, if_nodes: None }
            }
            4..=6 => plan(&self.quorum.coordinators[leader].state, Goal::default()).start(),
            7 | 8 => match self.table_to_create() {
                Some(command) => command,
                None => return,
            },
            9 => match self.node_to_remove() {
                Some(command) => command,
                None => return,
            },
            _ => match self.node_to_give_up() {
                Some(command) => command,
                None => return,
            },
        };
        self.propose(leader, Proposal { term, commands: vec![command], reply: None });
    }

    fn table_to_create(&mut self) -> Option<Command> {
        let room = self.room_for_partitions()?;
        let partitions = 1 + u32::try_from(self.random.below(u64::from(room))).unwrap_or(0);
        let most = u64::from(self.plan.settings.replication);
        let replication = u8::try_from(self.random.between(1, most)).unwrap_or(1);
        Some(Command::CreateTable {
            name: self.free_name(),
            partitioning: Partitioning::Hash { partitions },
            replication,
            holds: TableContent::Data,
        })
    }

    /// Returns a removal of a node whose directory is lost, so that it cannot return.
    fn node_to_remove(&mut self) -> Option<Command> {
        let state = &self.quorum.state;
        let there = self.hosts.iter().filter_map(|host| state.node_by_storage(host.disk.storage));
        let there: Vec<_> = there.map(|row| row.node.id).collect();
        let nodes = state.nodes.values().filter(|row| !there.contains(&row.node.id));
        let gone: Vec<_> = nodes.map(|row| (row.node.id, row.node.version)).collect();
        let (node, if_version) = self.random.pick(&gone)?;
        Some(Command::RemoveNode { node, if_version })
    }

    /// Destroys a stopped machine, and returns the operator's order to declare its node lost.
    fn node_to_give_up(&mut self) -> Option<Command> {
        let down: Vec<usize> = (0..self.hosts.len()).filter(|host| self.hosts[*host].process.is_none()).collect();
        let host = self.random.pick(&down).filter(|_| self.plan.destroys)?;
        let row = self.quorum.state.node_by_storage(self.hosts[host].disk.storage)?;
        let (node, if_version) = (row.node.id, row.node.version);
        (row.node.status == NodeStatus::Failed).then_some(())?;
        self.hosts[host].snapshot = None;
        self.damage_disk(host);
        Some(Command::NodeLost { node, if_version })
    }

    /// Copies the directory, to roll it back later.
    pub(crate) fn copy_disk(&mut self, host: usize) {
        let copy = Box::new(self.hosts[host].disk.clone());
        self.hosts[host].snapshot = Some(copy);
    }

    /// Destroys one placement's files, which the node notices at its start.
    pub(crate) fn lose_placement(&mut self, host: usize) {
        self.power_off(host);
        let disk = &mut self.hosts[host].disk;
        let held: Vec<_> = disk.streams.keys().copied().collect();
        if let Some(lost) = self.random.pick(&held) {
            self.coverage.files_lost += 1;
            self.note(|| format!("{lost} is gone from the disk of host {host}"));
            self.hosts[host].disk.streams.remove(&lost);
            self.checks.destroy([lost]);
            self.checks.damage.placement(&self.quorum.state, lost);
        }
        self.come_back(host);
    }

    /// Marks acknowledged data on this disk as lost or old: nothing is expected of its copies any longer.
    pub(crate) fn damage_disk(&mut self, host: usize) {
        let down = self.hosts[host].process.is_none();
        let storage = self.hosts[host].disk.storage;
        let activated = self.quorum.state.node_by_storage(storage).and_then(|row| row.activated);
        // A directory rolled back within the incarnation that wrote it cannot be distinguished from the original (rule
        // 19).
        let older = self.hosts[host].snapshot.take_if(|old| old.storage == storage && old.incarnation < activated);
        self.power_off(host);
        let lost: Vec<_> = self.hosts[host].disk.streams.keys().copied().collect();
        self.checks.damage.directory(&self.quorum.state, storage, older.is_none());
        match older {
            Some(older) => {
                self.coverage.rollbacks += 1;
                self.note(|| format!("the disk of host {host} is set back"));
                self.checks.set_back(&older);
                self.hosts[host].disk = *older;
            }
            None => {
                self.coverage.wipes += 1;
                self.note(|| format!("the disk of host {host} is wiped"));
                let storage = self.unique();
                self.hosts[host].disk = Disk::new(storage);
            }
        }
        self.checks.destroy(lost);
        if !down {
            self.come_back(host);
        }
    }
}
