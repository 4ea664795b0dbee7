//! Missing reports of nodes, and the end of a recovery.

use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::recovery::{Inventory, Recovery};
use archon_types::{NodeId, NodeStatus};

/// Returns the nodes that have not reported everything yet, and are not lost.
pub fn unheard<'a>(state: &'a ClusterState, recovery: &'a Recovery) -> impl Iterator<Item = NodeId> + 'a {
    let nodes = state.nodes.values().filter(|row| row.node.status != NodeStatus::Lost);
    let heard = |node| recovery.inventories.get(&node).is_some_and(Inventory::is_complete);
    nodes.map(|row| row.node.id).filter(move |node| !heard(*node))
}

/// Returns true if the recovery can end: all nodes that are not lost have reported, and an operator has accepted
/// possible losses, if there are any.
pub(crate) fn settles(state: &ClusterState, recovery: &Recovery) -> bool {
    let heard = unheard(state, recovery).next().is_none() && (!recovery.may_lose() || recovery.accepted);
    (heard && recovery.has_taken_over()) || state.breaks(Mutant::SettledUnheard)
}
