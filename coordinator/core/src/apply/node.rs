//! A node's activation, failure and goal.

use super::stage::Staged;
use super::{Entry, next_epoch, not_found};
use crate::command::{Response, Successor};
use crate::events::EventKind;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, Incarnation, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus};
use std::collections::BTreeMap;

pub(super) fn activate(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    incarnation: Incarnation,
) -> Result<Response, ErrorDetail> {
    state.check_sender(node, incarnation)?;
    if let Some(row) = state.nodes.get_mut(&node) {
        row.activated = Some(incarnation);
    }
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
    let mut staged = Staged::new(state, entry);
    let (mut leaderships, mut handed_on) = (0, 0);
    for row in state.partitions.on_node(node) {
        if row.leader_placement().map(|leader| leader.node) != Some(node) {
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
    // This life gets no answer any more and its lease is over.
    for (partition, epoch) in state.formers.of_holder(node, incarnation) {
        staged.forget_former(partition, epoch);
    }
    let effect = staged.into_effect();
    effect.commit(state, entry);
    set_status(state, entry, node, NodeStatus::Failed);
    entry.note(state, EventKind::NodeFailed { node, incarnation, leaderships, handed_on });
    entry.done()
}

/// Whether the named successor still can lead: the row has not changed, and a Live copy's node acts in that life.
fn can_lead(state: &ClusterState, row: &Partition, successor: &Successor, failed: NodeId) -> bool {
    let placement = row.live().find(|live| live.id == successor.placement);
    successor.if_version == row.version
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
) -> Result<Response, ErrorDetail> {
    let Some(row) = state.nodes.get_mut(&node) else {
        return Err(not_found(format!("there is no node {node}")));
    };
    if row.node.goal != goal {
        row.node.goal = goal;
        row.node.version = entry.version();
        state.nodes_version = entry.version();
        entry.note(state, EventKind::GoalChanged { node, goal });
    }
    entry.done()
}

fn set_status(state: &mut ClusterState, entry: Entry<'_>, node: NodeId, status: NodeStatus) {
    if let Some(row) = state.nodes.get_mut(&node) {
        row.node.status = status;
        row.node.version = entry.version();
        row.node.since = entry.at;
        state.nodes_version = entry.version();
    }
}
