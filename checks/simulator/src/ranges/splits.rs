//! Splits: an operator orders them for tables by ranges at any time and at times cancels one; and the faults placed
//! around a split (rules 34 to 42).

use crate::coordinator::member::host_of;
use crate::event::Event;
use crate::network::{End, NetworkCut};
use crate::random::Random;
use crate::world::World;
use archon_coordinator_core::{ClusterState, Command, check_cancel_split, check_split};
use archon_types::{NodeGoal, Partition, PartitionId, Partitioning, RangeLimits, TableContent};
use bytes::Bytes;

/// Maximum number of partitions of all tables by ranges.
const PARTITIONS_MAX: usize = 6;

/// Returns a key of a table by ranges; every other one is a counter.
pub(crate) fn key(number: u64) -> Bytes {
    let counter = if number.is_multiple_of(2) { "" } else { "count" };
    Bytes::from(format!("k{}{counter}", number / 2))
}

/// Returns the keys of a table by ranges: `count` values, and as many counters.
pub(crate) fn keys(count: u64) -> impl Iterator<Item = Bytes> {
    (0..count * 2).map(key)
}

/// Returns the partitions of tables by ranges.
fn rows(state: &ClusterState) -> impl Iterator<Item = &Partition> {
    state.data_rows().filter(|row| state.is_range(row.id.table))
}

/// Draws a split key: a used one, or one between.
fn draw_point(random: &mut Random, keys: u64) -> Bytes {
    match random.below(4) {
        0 => Bytes::from(format!("k{}5", random.below(keys))),
        _ => key(random.between(1, keys * 2 - 1)),
    }
}

impl World {
    /// Orders a split, and schedules the next one.
    pub(crate) fn order_split(&mut self) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let delay = self.splits.between(unit * 3, unit * 25);
        self.after(delay, Event::Split);
        let Some(leader) = self.quorum.leader else { return };
        let coordinator = &self.quorum.coordinators[leader];
        if coordinator.session.is_none() {
            return;
        }
        let state = &coordinator.state;
        let rows: Vec<PartitionId> = rows(state).map(|row| row.id).collect();
        let command = match self.splits.pick(&rows) {
            None if self.plan.settings.nodes_min as usize > state.nodes.len() => return,
            None => self.range_table(),
            Some(_) if rows.len() >= PARTITIONS_MAX => return,
            Some(partition) => {
                let at = draw_point(&mut self.splits, self.plan.range_keys);
                let Ok(plan) = check_split(&self.quorum.coordinators[leader].state, partition, &at) else { return };
                self.trouble_split(partition);
                plan.command
            }
        };
        self.say(command);
    }

    /// Returns a table by ranges, possibly split beforehand.
    fn range_table(&mut self) -> Command {
        let state = &self.quorum.state;
        let mut names = (0..).map(|number: u64| format!("r{number}"));
        let name = names.find(|name| state.table_by_name(name).is_none()).unwrap_or_default();
        let split_at = match self.splits.below(3) {
            0 => vec![draw_point(&mut self.splits, self.plan.range_keys)],
            _ => Vec::new(),
        };
        let replication = self.plan.settings.replication;
        let partitioning = Partitioning::Range { split_at, limits: RangeLimits::NONE };
        Command::CreateTable { name, partitioning, replication, holds: TableContent::Data }
    }

    /// Draws whether and how to disturb the split about to begin: soon, since it takes some tenths of a second.
    fn trouble_split(&mut self, partition: PartitionId) {
        let unit = self.plan.unit_ms();
        if self.splits.below(6) == 0 {
            let when = self.splits.between(1, unit * 12);
            self.after(when, Event::CancelSplit { partition });
        }
        for _ in 0..self.splits.below(3) {
            let when = self.splits.between(1, unit * 5);
            self.after(when, Event::DisturbReshape { partition });
        }
    }

    /// Cancels the split of this partition, if it is in progress.
    pub(crate) fn cancel_split(&mut self, partition: PartitionId) {
        let Some(leader) = self.quorum.leader.filter(|_| !self.healing) else { return };
        let state = &self.quorum.coordinators[leader].state;
        let Ok(command) = check_cancel_split(state, partition) else { return };
        self.say(command);
    }

    /// Injects a fault of a machine with a copy of the partition being split, or of the leading coordinator.
    pub(crate) fn disturb_reshape(&mut self, partition: PartitionId) {
        if self.healing {
            return;
        }
        let state = &self.quorum.state;
        let Some(row) = state.partitions.get(partition) else { return };
        let host = |node| state.node(node).and_then(|row| host_of(&row.node.address));
        let all: Vec<usize> = row.placements.iter().filter_map(|copy| host(copy.node)).collect();
        let leader = row.leader_placement().and_then(|copy| host(copy.node));
        let others: Vec<usize> = all.into_iter().filter(|host| Some(*host) != leader).collect();
        let follower = self.splits.pick(&others);
        let chosen = if self.splits.below(3) == 0 { follower.or(leader) } else { leader.or(follower) };
        let Some(host) = chosen else { return };
        self.coverage.themed += 1;
        self.note(|| format!("trouble for host {host} in the split of {partition}"));
        let (unit, timeout) = (self.plan.unit_ms(), self.plan.settings.timing.failure_timeout_ms);
        let own = [End::Host(host)];
        let peers: Vec<End> = (0..self.hosts.len()).filter(|other| *other != host).map(End::Host).collect();
        let coordinators = self.quorum.ends();
        let over = self.splits.between(unit, timeout * 3);
        let (since, until) = (self.truth, self.truth + over);
        match self.splits.below(13) {
            0 | 1 => {
                self.coverage.kills += 1;
                self.kill(host);
                self.come_back(host);
            }
            2 | 3 => {
                self.coverage.power_losses += 1;
                self.power_off(host);
                self.come_back(host);
            }
            4 => self.hosts[host].paused_until = until,
            5 => self.part(&own, &peers, (0, over)),
            6 => self.part(&own, &coordinators, (0, over)),
            7 => self.network.cut(NetworkCut { from: coordinators, to: own.to_vec(), since, until }),
            8 | 9 => self.after(0, Event::Deafen { host, until }),
            10 => self.elect_coordinator(),
            11 => {
                let node = self.quorum.state.node_by_storage(self.hosts[host].disk.storage).map(|row| row.node.id);
                let Some(node) = node else { return };
                self.say(Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: None });
            }
            _ if self.plan.destroys && self.splits.below(2) == 0 => self.lose_placement(host),
            _ if self.plan.destroys => self.damage_disk(host),
            _ => {
                self.coverage.power_losses += 1;
                for host in 0..self.hosts.len() {
                    self.power_off(host);
                    self.come_back(host);
                }
            }
        }
    }

    /// Injects a fault during a split.
    pub(crate) fn around_a_split(&mut self) {
        let splitting: Vec<PartitionId> = self.quorum.state.partitions.splitting().map(|row| row.id).collect();
        if let Some(partition) = self.splits.pick(&splitting) {
            self.disturb_reshape(partition);
        }
        self.theme_until = self.truth + self.plan.unit_ms();
    }
}
