//! What a member leads on although it is in maintenance: nobody else takes it.

use crate::state::ClusterState;
use archon_types::{NodeGoal, NodeId, Partition, PartitionId};

/// The partitions that a member goes on leading while it is in maintenance. Once it stops nobody serves them.
pub fn still_led(state: &ClusterState, member: NodeId) -> impl Iterator<Item = PartitionId> + use<'_> {
    let leads = move |row: &&Partition| row.leader_placement().is_some_and(|leader| leader.node == member);
    let rows = state.partitions.on_node(member).filter(leads).filter(|row| !state.is_offline(row.id));
    rows.filter(move |row| !another_takes(state, row, member)).map(|row| row.id)
}

/// Whether somebody else may lead the partition: another copy that counts, or of a lease any participant with room for it.
fn another_takes(state: &ClusterState, row: &Partition, member: NodeId) -> bool {
    let free = |node: NodeId| node != member && state.is_active(node) && !state.bars(row.id, node);
    match state.tables.get(&row.id.table).filter(|table| state.is_lease(table.id)) {
        Some(table) => state
            .participants
            .serving(&table.name)
            .any(|other| free(other.node.id) && other.takes_placements() && other.room(state) > 0),
        None => row.live().any(|copy| {
            let goal = state.node(copy.node).map(|row| row.node.goal);
            free(copy.node) && !goal.is_some_and(NodeGoal::gives_up_leaderships)
        }),
    }
}
