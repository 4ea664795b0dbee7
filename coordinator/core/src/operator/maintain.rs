//! Partitions that a member leads despite its maintenance, since no other member takes them.

use crate::leases::Successors;
use crate::state::ClusterState;
use archon_types::{NodeGoal, NodeId, Partition, PartitionId};

/// Returns the partitions that a member goes on leading while it is in maintenance. They become unavailable once it
/// stops.
pub fn still_led(state: &ClusterState, member: NodeId) -> impl Iterator<Item = PartitionId> + use<'_> {
    let leads = move |row: &&Partition| row.leader_placement().is_some_and(|leader| leader.node == member);
    let rows = state.partitions.on_node(member).filter(leads).filter(|row| !state.is_offline(row.id));
    let mut successors = Successors::new(state);
    let stays = move |row: &&Partition| match state.is_lease(row.id.table) {
        true => !successors.may_go(row, member),
        false => !another_copy_takes(state, row, member),
    };
    rows.filter(stays).map(|row| row.id)
}

/// Returns true if another Live copy may lead the partition.
fn another_copy_takes(state: &ClusterState, row: &Partition, member: NodeId) -> bool {
    row.live().filter(|copy| copy.node != member && !state.bars(row.id, copy.node)).any(|copy| {
        let goal = state.node(copy.node).map(|row| row.node.goal);
        state.is_active(copy.node) && !goal.is_some_and(NodeGoal::gives_up_leaderships)
    })
}
