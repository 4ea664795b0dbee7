//! Checks of draining, losing and removing nodes.

use crate::command::Command;
use crate::leases::Successors;
use crate::operator::obstacle::Obstacle;
use crate::placement::eligible_nodes::EligibleNodes;
use crate::placement::out_of_sync::delete_not_issued;
use crate::state::ClusterState;
use crate::state::names::NAMED_MAX;
use crate::state::node_row::NodeRow;
use archon_types::{
    NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Placement, ReplicaState, TableId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Predicted effect of draining a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainPlan {
    /// Leaderships that go to other nodes.
    pub leaderships: u32,
    /// Copies that go to other nodes.
    pub placements: u32,
    /// Number of copies that each of the other nodes gets.
    pub gains: BTreeMap<NodeId, u32>,
    /// Partitions that will newly have two copies in one zone. Zones are a preference, so this is no obstacle.
    pub zones_doubled: u32,
    /// The command that begins it.
    pub command: Command,
}

impl DrainPlan {
    /// Plans the drain of a participant, which has nothing to copy. Partitions that no other participant takes stay
    /// with it, and are not counted.
    fn of_participant(state: &ClusterState, node: NodeId) -> Self {
        let mut successors = Successors::new(state);
        let mut leave: BTreeMap<TableId, u64> = BTreeMap::new();
        let owns = |row: &&Partition| row.leader_placement().is_some_and(|leader| leader.node == node);
        for row in state.partitions.on_node(node).filter(owns) {
            *leave.entry(row.id.table).or_default() += u64::from(successors.may_go(row, node));
        }
        let leave = leave.into_iter().map(|(table, count)| count.min(successors.room_beside(table, node)));
        let leaderships = u32::try_from(leave.sum::<u64>()).unwrap_or(u32::MAX);
        let command = Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: None };
        Self { leaderships, placements: 0, gains: BTreeMap::new(), zones_doubled: 0, command }
    }
}

/// Checks that a node can be drained, and plans where its copies go.
///
/// # Errors
/// All obstacles at once.
pub fn check_drain(state: &ClusterState, node: NodeId) -> Result<DrainPlan, Vec<Obstacle>> {
    let Some(own) = state.node(node) else { return Err(vec![Obstacle::NoSuchNode { node }]) };
    if own.participant.is_some() {
        return Ok(DrainPlan::of_participant(state, node));
    }
    let mut obstacles = Vec::new();
    let others = state.nodes.values().filter(|row| row.will_take_placements() && row.node.id != node);
    let eligible_count = others.clone().count();
    let takes = |other: NodeId| other != node && state.node(other).is_some_and(NodeRow::will_take_placements);
    let mut eligible = EligibleNodes::new(others, |other| state.partitions.held_on(other));
    let held: Vec<&Partition> = rows_with(state, node, |state| state != ReplicaState::Unload);
    for table in state.tables.values().filter(|table| held.iter().any(|row| row.id.table == table.id)) {
        // Cordoned nodes keep their copies, so these count.
        let short = held.iter().filter(|row| row.id.table == table.id).any(|row| {
            let stays =
                row.placements.iter().filter(|placement| placement.node != node && stays(state, placement.node));
            let holders = row.placements.iter().filter(|placement| takes(placement.node)).count();
            let free = eligible_count.saturating_sub(holders);
            stays.count() + free < usize::from(table.replication)
        });
        if short {
            let (have, need) = (eligible_count as u64, u64::from(table.replication));
            let (table, node) = (table.name.clone(), own.node.name.clone());
            obstacles.push(Obstacle::TooFewNodes { table, node, have, need });
        }
    }
    if own.node.status != NodeStatus::Alive {
        let only: Vec<&Partition> =
            held.iter().copied().filter(|row| row.live().count() > 0 && row.live().all(|p| p.node == node)).collect();
        if !only.is_empty() {
            let (partitions, named) = names(state, &only);
            obstacles.push(Obstacle::OnlyCopies { node: own.node.name.clone(), partitions, named });
        }
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let bars = state.controls.barred();
    let mut gains: BTreeMap<NodeId, u32> = BTreeMap::new();
    let (mut nowhere, mut barred, mut zones_doubled) = (0, 0, 0);
    for row in &held {
        match eligible.target(state, row, |other| other == node) {
            Some(found) => {
                eligible.note(found.node);
                *gains.entry(found.node).or_default() += 1;
                zones_doubled += u32::from(found.zone_doubled);
            }
            None => {
                let could = |other: NodeId| takes(other) && row.placement_on(other).is_none();
                nowhere += 1;
                barred += u32::from(bars.iter().any(|other| could(*other) && state.bars(row.id, *other)));
            }
        }
    }
    match (nowhere, barred) {
        (0, _) => {}
        (placements, 0) => {
            let taken = |id: NodeId| state.partitions.held_on(id) + gains.get(&id).copied().unwrap_or_default();
            let full =
                state.nodes.values().filter(|row| takes(row.node.id) && row.room_beside(taken(row.node.id)) == 0);
            let limits = full.take(NAMED_MAX).map(|row| (row.node.name.clone(), row.assigned_max())).collect();
            return Err(vec![Obstacle::NodesAtLimit { placements, limits }]);
        }
        (placements, barred) => return Err(vec![Obstacle::NodesBarred { placements, barred }]),
    }
    Ok(DrainPlan {
        leaderships: state.partitions.leaders_on(node),
        placements: u32::try_from(held.len()).unwrap_or(u32::MAX),
        gains,
        zones_doubled,
        command: Command::SetNode { node, goal: NodeGoal::Drain, if_nodes: Some(state.nodes_version) },
    })
}

/// Effect of declaring a node's data lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LossPlan {
    /// Copies that are given up, including out-of-sync ones.
    pub placements: u32,
    /// In-sync copies among them.
    pub counting: u32,
    /// Partitions without an in-sync copy afterwards: acknowledged writes are lost with them.
    pub last_copies: Vec<PartitionId>,
    /// The command.
    pub command: Command,
}

/// Checks that a node's data can be declared lost, and returns the losses.
///
/// # Errors
/// The obstacle.
pub fn check_lose_node(state: &ClusterState, node: NodeId) -> Result<LossPlan, Vec<Obstacle>> {
    let Some(own) = state.node(node) else { return Err(vec![Obstacle::NoSuchNode { node }]) };
    if own.node.status == NodeStatus::Alive {
        let remedy = "stop it, or wait until it is failed, before declaring its data lost";
        return Err(vec![Obstacle::Alive { node: own.node.name.clone(), remedy }]);
    }
    if own.participant.is_some() {
        return Err(vec![Obstacle::IsParticipant { node: own.node.name.clone() }]);
    }
    let held = rows_with(state, node, |state| state == ReplicaState::Live);
    let last = held.iter().filter(|row| row.live().count() == 1).map(|row| row.id);
    Ok(LossPlan {
        placements: state.partitions.held_on(node),
        counting: u32::try_from(held.len()).unwrap_or(u32::MAX),
        last_copies: last.collect(),
        command: Command::NodeLost { node, if_version: own.node.version },
    })
}

/// Effect of removing a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RemovalPlan {
    /// Copies that are dropped with it. None of them is in sync; other copies of their partitions are.
    pub placements: u32,
    /// The command.
    pub command: Command,
}

/// Checks that a node can be removed: it must hold no in-sync copy, and no last remains of a partition.
///
/// # Errors
/// The obstacles.
pub fn check_remove(state: &ClusterState, node: NodeId) -> Result<RemovalPlan, Vec<Obstacle>> {
    let Some(own) = state.node(node) else { return Err(vec![Obstacle::NoSuchNode { node }]) };
    let mut obstacles = Vec::new();
    let name = || own.node.name.clone();
    let mut held = rows_with(state, node, |state| state == ReplicaState::Live);
    held.retain(|row| !state.is_lease(row.id.table));
    if !held.is_empty() {
        let (partitions, named) = names(state, &held);
        let only = held.iter().any(|row| row.live().count() == 1);
        let remedy = match (own.node.status == NodeStatus::Alive, only) {
            (true, _) => "drain it first".to_owned(),
            (false, false) => "drain it first, or declare it lost".to_owned(),
            // It cannot be copied from, so it cannot be drained in this state.
            (false, true) => format!(
                "start it and drain it; if its data is gone: `archon node lost {} --accept-data-loss`, and then this",
                own.node.name
            ),
        };
        obstacles.push(Obstacle::HoldsCopies { node: name(), partitions, named, remedy });
    }
    let trace = |row: &&Partition| {
        let data = |copy: &Placement| copy.state == ReplicaState::Load || delete_not_issued(state, copy);
        row.status != PartitionStatus::Unassigned
            && !state.is_lease(row.id.table)
            && row.live().next().is_none()
            && row.placement_on(node).is_some_and(data)
    };
    let traces: Vec<&Partition> = state.partitions.on_node(node).filter(trace).collect();
    if !traces.is_empty() {
        let (partitions, named) = names(state, &traces);
        obstacles.push(Obstacle::LastTraces { node: name(), partitions, named });
    }
    if own.node.status == NodeStatus::Alive {
        let remedy = if held.is_empty() { "stop it before removing it" } else { "drain it and stop it first" };
        obstacles.push(Obstacle::Alive { node: name(), remedy });
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let command = Command::RemoveNode { node, if_version: own.node.version };
    Ok(RemovalPlan { placements: state.partitions.held_on(node), command })
}

/// Returns true if copies may stay on this node.
fn stays(state: &ClusterState, node: NodeId) -> bool {
    state.node(node).is_some_and(NodeRow::keeps_placements)
}

fn rows_with(state: &ClusterState, node: NodeId, wanted: impl Fn(ReplicaState) -> bool) -> Vec<&Partition> {
    state.partitions.on_node(node).filter(|row| row.placement_on(node).is_some_and(|p| wanted(p.state))).collect()
}

fn names(state: &ClusterState, rows: &[&Partition]) -> (u32, String) {
    let named = state.partition_names(rows.iter().map(|row| row.id));
    (u32::try_from(rows.len()).unwrap_or(u32::MAX), named)
}
