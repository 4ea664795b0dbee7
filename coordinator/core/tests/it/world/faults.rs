//! Faults of the world, and actions of its operators.

use super::{Event, World};
use archon_coordinator_core::*;
use archon_types::*;

#[derive(Clone, Debug)]
pub enum Fault {
    Crash {
        node: usize,
        down_ms: u64,
    },
    Wipe {
        node: usize,
        down_ms: u64,
    },
    Pause {
        node: usize,
        for_ms: u64,
    },
    CutOff {
        node: usize,
        for_ms: u64,
    },
    Stop {
        node: usize,
        down_ms: u64,
    },
    NewCoordinator,
    Plan,
    CancelPlan,
    Goal {
        node: usize,
        goal: NodeGoal,
    },
    /// The oldest table is dropped, and perhaps created again at once.
    DropTable {
        again: bool,
    },
    /// The oldest table gets this number of copies of each partition, as far as there are nodes.
    AlterTable {
        replication: u8,
    },
    /// A node gets another weight and zone.
    AlterNode {
        node: usize,
        weight: u32,
        zoned: bool,
    },
    /// An operator gives an order about a node and a partition, by number; the next such order also revokes it.
    Order {
        number: u8,
        node: usize,
        partition: u32,
    },
    /// An operator changes settings.
    Configure {
        failure_timeout_ms: u64,
        copies_per_node_max: u64,
    },
    Calm {
        for_ms: u64,
    },
}

impl World {
    pub fn strike(&mut self, fault: &Fault) {
        let truth = self.truth;
        let count = self.nodes.len();
        match fault {
            Fault::Crash { node, down_ms } => {
                self.nodes[node % count].crash();
                self.after(*down_ms, Event::Restart(node % count));
            }
            Fault::Wipe { node, down_ms } => {
                self.nodes[node % count].crash();
                self.nodes[node % count].wipe();
                self.after(*down_ms, Event::Restart(node % count));
            }
            Fault::Pause { node, for_ms } => self.nodes[node % count].paused_until = truth + for_ms,
            Fault::CutOff { node, for_ms } => self.nodes[node % count].cut_off_until = truth + for_ms,
            Fault::Stop { node, down_ms } => {
                if let Some((id, incarnation)) = self.nodes[node % count].stop() {
                    self.send(node % count, Event::Stopping { node: id, incarnation });
                }
                self.after(*down_ms, Event::Restart(node % count));
            }
            Fault::NewCoordinator => self.new_coordinator(),
            Fault::Plan => {
                let commands = vec![plan(&self.state, Goal::default()).start()];
                self.propose(None, commands);
            }
            Fault::CancelPlan => self.propose(None, vec![Command::CancelPlan]),
            Fault::Goal { node, goal } => {
                let id = self.state.nodes.keys().nth(node % self.state.nodes.len().max(1)).copied();
                self.propose(
                    None,
                    id.map(|node| Command::SetNode { node, goal: *goal, if_nodes: None }).into_iter().collect(),
                );
            }
            Fault::DropTable { again } => {
                let Some(table) = self.state.tables.values().next().cloned() else { return };
                let mut commands = vec![Command::DropTable { table: table.id }];
                if *again {
                    let Table { name, keys, replication, .. } = table;
                    let partitions = keys.numbers_end();
                    commands.push(Command::CreateTable {
                        name,
                        partitioning: Partitioning::Hash { partitions },
                        replication,
                        holds: TableContent::Data,
                    });
                }
                self.propose(None, commands);
            }
            Fault::AlterTable { replication } => {
                let replication = (*replication).min(count as u8);
                let Some(table) = self.state.tables.values().next() else { return };
                let change = TableChange { replication: Some(replication), ..TableChange::default() };
                let judged = check_alter_table(&self.state, table, &change).ok().flatten();
                self.propose(None, judged.into_iter().collect());
            }
            Fault::AlterNode { node, weight, zoned } => {
                let id = self.state.nodes.keys().nth(node % self.state.nodes.len().max(1)).copied();
                let zone = Some(zoned.then(|| "east".to_owned()));
                let change = TraitsChange { zone, weight: Some(*weight), partitions_max: None };
                let judged = id.and_then(|id| check_alter_node(&self.state, id, &change).ok());
                self.propose(None, judged.and_then(|judged| judged.command).into_iter().collect());
            }
            Fault::Order { number, node, partition } => {
                let member = self.state.nodes.keys().nth(node % self.state.nodes.len().max(1)).copied();
                let rows: Vec<&Partition> = self.state.partitions.iter().collect();
                let row = rows.get(*partition as usize % rows.len().max(1)).copied();
                let command = member.zip(row).and_then(|(member, row)| {
                    let (partition, epoch) = (row.id, row.epoch);
                    let until = Millis::new(truth + 2_000);
                    let order = match number {
                        0 => Order::Bump { partition, epoch },
                        1 if self.state.is_offline(partition) => Order::Online { partition },
                        1 => Order::Offline { partition },
                        2 if self.state.bars(partition, member) => {
                            Order::Unbar { bar: Bar::Partition(partition), member }
                        }
                        2 => Order::Bar { bar: Bar::Partition(partition), member },
                        _ => Order::Maintain { member, until },
                    };
                    check_order(&self.state, order, "").ok().flatten()
                });
                self.propose(None, command.into_iter().collect());
            }
            Fault::Configure { failure_timeout_ms, copies_per_node_max } => {
                let wanted = [
                    SettingChange { setting: Setting::FailureTimeoutMs, value: *failure_timeout_ms },
                    SettingChange { setting: Setting::CopiesPerNodeMax, value: *copies_per_node_max },
                ];
                let judged = check_configure(&self.state, &wanted, None).expect("within what fits");
                self.propose(None, judged.command.into_iter().collect());
            }
            Fault::Calm { for_ms } => self.run(truth + for_ms),
        }
    }
}
