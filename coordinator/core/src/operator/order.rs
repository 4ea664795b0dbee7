//! Checks of orders about partitions and members.

use crate::command::Command;
use crate::operator::obstacle::Obstacle;
use crate::state::ClusterState;
use crate::state::controls::{Bar, Order};
use crate::state::node_row::NodeRow;
use archon_types::{NodeGoal, NodeId, PartitionId, TableContent};

/// Checks that an order can be given, and returns its command; `None` if it holds already.
///
/// A bar must leave enough nodes for the copies that the table wants. Participants come and go, so any of them may be
/// barred from a lease; if no other participant may own it, its owner stays, reported as [`archon_types::Facts::OwnerStays`].
///
/// # Errors
/// All obstacles.
pub fn check_order(state: &ClusterState, order: Order, why: &str) -> Result<Option<Command>, Vec<Obstacle>> {
    let news = match order {
        Order::Bump { partition, .. } => {
            let row = state.partitions.get(partition).ok_or_else(|| no_partition(state, partition))?;
            if row.leader.is_none() {
                return Err(vec![Obstacle::NoLeader { partition: state.partition_name(partition) }]);
            }
            true
        }
        Order::Bar { bar, member } => {
            check_there(state, member)?;
            check_bar(state, bar, member)?;
            !state.controls.has_bar(member, bar)
        }
        Order::Unbar { bar, member } => state.controls.has_bar(member, bar),
        Order::Offline { partition } => !state.is_offline(partition),
        Order::Online { partition } => state.is_offline(partition),
        Order::Maintain { member, .. } => {
            let goal = check_there(state, member)?.node.goal;
            if goal == NodeGoal::Drain {
                return Err(vec![Obstacle::Draining { node: state.node_name(member) }]);
            }
            true
        }
        Order::Resume { member } => {
            check_there(state, member)?;
            if state.controls.maintenance_of(member).is_none() {
                return Err(vec![Obstacle::NotInMaintenance { node: state.node_name(member) }]);
            }
            true
        }
    };
    let command = Command::Control { if_controls: state.controls_version, order, why: why.to_owned() };
    Ok(news.then_some(command))
}

/// Returns the row of a member that can get orders: its data is not lost.
pub(super) fn check_there(state: &ClusterState, member: NodeId) -> Result<&NodeRow, Vec<Obstacle>> {
    let row = state.node(member).filter(|row| !row.is_lost());
    row.ok_or_else(|| vec![Obstacle::NoSuchNode { node: member }])
}

fn no_partition(state: &ClusterState, partition: PartitionId) -> Vec<Obstacle> {
    vec![Obstacle::NoSuchPartition { partition: state.partition_name(partition) }]
}

/// Checks that enough nodes are left for the data, for the partition with the most bars.
fn check_bar(state: &ClusterState, bar: Bar, member: NodeId) -> Result<(), Vec<Obstacle>> {
    let Some(table) = state.tables.get(&bar.table()).filter(|table| table.holds == TableContent::Data) else {
        return Ok(());
    };
    let holds = |row: &&NodeRow| row.keeps_placements() && row.node.id != member;
    let left = |partition: PartitionId| {
        state.nodes.values().filter(holds).filter(|row| !state.bars(partition, row.node.id)).count() as u64
    };
    let partitions: Vec<PartitionId> = match bar {
        Bar::Partition(partition) => vec![partition],
        // The partitions with own bars, and one for all others.
        Bar::Table(table) => state
            .controls
            .bars()
            .filter_map(|(_, bar, _)| match bar {
                Bar::Partition(partition) if partition.table == table => Some(partition),
                Bar::Partition(_) | Bar::Table(_) => None,
            })
            .chain([PartitionId::new(table, 0)])
            .collect(),
    };
    let have = partitions.into_iter().map(left).min().unwrap_or(0);
    let need = u64::from(table.replication);
    if have < need {
        let (subject, node) = (format!("table {}", table.name), state.node_name(member));
        return Err(vec![Obstacle::TooFewUnbarred { subject, node, have, need }]);
    }
    Ok(())
}
