//! Activation, failure and goal of a node.

use super::dropped::forget_node;
use super::stage::StagedRows;
use crate::command::Successor;
use crate::command::apply::entry::Entry;
use crate::command::refusals::{invalid, next_epoch, not_found, refused, stale};
use crate::mutant::Mutant;
use crate::placement::out_of_sync::delete_not_issued;
use crate::state::ClusterState;
use crate::state::actor::Actor;
use crate::state::events::{DoorNews, EventKind};
use crate::state::node_row::NodeRow;
use crate::state::out_of_sync_copy::Condition;
use crate::state::response::Response;
use archon_types::{
    ErrorDetail, Incarnation, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Placement,
    ReplicaState, Version,
};
use std::collections::BTreeMap;

pub(super) fn activate(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    incarnation: Incarnation,
) -> Result<Response, ErrorDetail> {
    state.check_sender(node, incarnation)?;
    state.update_member(node, entry.version(), |row| row.activated = Some(incarnation));
    state.activated_version = entry.version();
    entry.done()
}

pub(super) fn failed(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    incarnation: Incarnation,
    successors: &[Successor],
) -> Result<Response, ErrorDetail> {
    state.check_sender(node, incarnation)?;
    let named: BTreeMap<PartitionId, &Successor> =
        successors.iter().map(|successor| (successor.partition, successor)).collect();
    let mut staged = StagedRows::new(state, entry);
    let (mut leaderships, mut handed_on) = (0, 0);
    for row in state.partitions.on_node(node) {
        if row.leader_placement().map(|leader| leader.node) != Some(node) {
            continue;
        }
        if state.recovery.is_some() && !state.is_lease(row.id.table) {
            continue;
        }
        let mut row = row.clone();
        leaderships += 1;
        row.epoch = next_epoch(row.epoch)?;
        row.leader = None;
        if let Some(successor) = named.get(&row.id)
            && can_lead(state, &row, successor, node)
        {
            row.leader = Some(successor.placement);
            row.status = PartitionStatus::Assigned;
            handed_on += 1;
        }
        staged.put(row);
    }
    // This incarnation gets no answer any longer, and its lease has ended.
    for (partition, epoch) in state.former_leaders.of_holder(node, incarnation) {
        staged.forget_former(partition, epoch);
    }
    let effect = staged.into_effect();
    effect.commit(state, entry);
    set_status(state, entry, node, NodeStatus::Failed);
    if state.participants.get(&node).is_some() {
        forget_node(state, node); // Its lease has ended, and it holds nothing else.
    }
    let stopped = *entry.who == Actor::Node(node);
    state.update_member(node, entry.version(), |row| row.stopped = stopped);
    entry.note(state, EventKind::NodeFailed { node, incarnation, leaderships, handed_on });
    entry.done()
}

/// Records a probe result of a node as an event, if it concerns its present incarnation.
pub(super) fn note_door(state: &mut ClusterState, entry: Entry<'_>, news: &DoorNews) -> Result<Response, ErrorDetail> {
    let DoorNews { node, incarnation, by, shut_for_ms } = news;
    if !state.is_alive(*node) || state.incarnation(*node) != Some(*incarnation) {
        return Err(refused(format!("incarnation {incarnation} of {} is over", state.node_name(*node))));
    }
    let what = match by.is_empty() {
        false => EventKind::NodeUnreached { node: *node, by: by.clone(), since_ms: *shut_for_ms },
        true => EventKind::NodeReached { node: *node, after_ms: *shut_for_ms },
    };
    entry.note(state, what);
    entry.done()
}

/// Returns true if the named successor can still lead: the row is unchanged, and the node of its Live copy acts in that
/// incarnation.
fn can_lead(state: &ClusterState, row: &Partition, successor: &Successor, failed: NodeId) -> bool {
    let anyone = state.breaks(Mutant::ElectAnyone); // rule 9
    let able = |copy: &&Placement| copy.id == successor.placement && (copy.state == ReplicaState::Live || anyone);
    let placement = row.placements.iter().find(able);
    (successor.if_version == row.version || state.breaks(Mutant::ElectStale)) // rule 16
        && !state.is_offline(row.id)
        && placement.is_some_and(|placement| {
            placement.node != failed
                && state.is_active(placement.node)
                && state.incarnation(placement.node) == Some(successor.incarnation)
        })
}

pub(super) fn set_goal(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    goal: NodeGoal,
    if_nodes: Option<Version>,
) -> Result<Response, ErrorDetail> {
    if let Some(judged) = if_nodes.filter(|judged| *judged != state.nodes_version) {
        return Err(stale("the nodes", state.nodes_version, judged));
    }
    let Some(row) = state.node(node) else {
        return Err(not_found(format!("node {node} does not exist")));
    };
    if goal == NodeGoal::Maintain {
        return Err(invalid("maintenance is ordered with the time when it ends"));
    }
    if row.node.goal != goal {
        if state.controls.remove_maintenance(node).is_some() {
            entry.note(state, EventKind::MaintenanceOver { member: node });
        }
        want(state, entry, node, goal);
        entry.note(state, EventKind::GoalChanged { node, goal });
        if goal == NodeGoal::Drain {
            let placements = state.partitions.count_on(node);
            entry.note(state, EventKind::NodeDraining { node, placements });
            if placements == 0 {
                entry.note(state, EventKind::NodeDrained { node });
            }
        }
    }
    entry.done()
}

/// Sets the goal of a member.
pub(super) fn want(state: &mut ClusterState, entry: Entry<'_>, member: NodeId, goal: NodeGoal) {
    state.update_member(member, entry.version(), |row| {
        row.node.goal = goal;
        row.goal_since = entry.at;
        row.node.version = entry.version();
    });
}

/// Returns the row of a node that is not alive, if it has the version that the operator saw.
fn departed(state: &ClusterState, node: NodeId, if_version: Version) -> Result<&NodeRow, ErrorDetail> {
    let Some(row) = state.node(node) else {
        return Err(not_found(format!("node {node} does not exist")));
    };
    if row.node.version != if_version {
        return Err(stale(&row.node.name, row.node.version, if_version));
    }
    if row.node.status == NodeStatus::Alive {
        return Err(refused(format!("{} is alive; stop it first", row.node.name)));
    }
    Ok(row)
}

pub(super) fn declare_lost(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    if_version: Version,
) -> Result<Response, ErrorDetail> {
    let row = departed(state, node, if_version)?;
    if row.participant.is_some() {
        let name = &row.node.name;
        return Err(refused(format!("{name} is a participant: it holds no data that could be lost")));
    }
    if row.node.status == NodeStatus::Lost {
        return Ok(Response::NodeLost { placements: 0, counting: 0, last_copies: 0 });
    }
    let placements = state.partitions.held_on(node);
    let mut staged = StagedRows::new(state, entry);
    let (mut counting, mut last_copies) = (0, 0);
    for row in state.partitions.on_node(node) {
        let mut row = row.clone();
        let live = row.placement_on(node).filter(|placement| placement.state == ReplicaState::Live).map(|live| live.id);
        row.split.iter_mut().for_each(|split| split.copies.retain(|copy| copy.node != node));
        let Some(live) = live else {
            staged.put(row);
            continue;
        };
        staged.lose(&mut row, live, Condition::Whole, "an operator declared its node's data lost")?;
        counting += 1;
        last_copies += u32::from(row.live().next().is_none());
        staged.put(row);
    }
    let effect = staged.into_effect();
    match &mut state.recovery {
        // Rows are judged once all remaining nodes have reported their copies.
        Some(recovery) => drop(recovery.inventories.remove(&node)),
        None => effect.commit(state, entry),
    }
    set_status(state, entry, node, NodeStatus::Lost);
    forget_node(state, node);
    entry.note(state, EventKind::NodeDeclaredLost { node, placements: counting, last_copies });
    Ok(Response::NodeLost { placements, counting, last_copies })
}

pub(super) fn remove(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    if_version: Version,
) -> Result<Response, ErrorDetail> {
    let name = departed(state, node, if_version)?.node.name.clone();
    let placements = state.partitions.held_on(node);
    let mut staged = StagedRows::new(state, entry);
    for row in state.partitions.on_node(node) {
        let Some(placement) = row.placement_on(node) else { continue };
        let (id, partition) = (placement.id, state.partition_name(row.id));
        let data = placement.state == ReplicaState::Load || delete_not_issued(state, placement);
        let last_trace = data && row.live().next().is_none() && row.status != PartitionStatus::Unassigned;
        let counts = placement.state == ReplicaState::Live || last_trace;
        if counts && !state.is_lease(row.id.table) {
            let message = format!("{name} holds an in-sync replica or the last data of partition {partition}");
            return Err(refused(message));
        }
        let mut row = row.clone();
        row.placements.retain(|other| other.id != id);
        staged.put(row);
    }
    staged.into_effect().commit(state, entry);
    forget_node(state, node);
    state.controls.forget_member(node);
    state.remove_node(node, entry.version());
    entry.note(state, EventKind::NodeRemoved { node, name, placements });
    Ok(Response::NodeRemoved { placements })
}

fn set_status(state: &mut ClusterState, entry: Entry<'_>, node: NodeId, status: NodeStatus) {
    state.update_member(node, entry.version(), |row| {
        row.node.status = status;
        row.node.version = entry.version();
        row.node.since = entry.at;
    });
}
