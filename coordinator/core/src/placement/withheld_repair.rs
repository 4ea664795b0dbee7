//! Limit of replacements: copies of failed nodes are not replaced while too many nodes are failed.

use crate::state::ClusterState;
use archon_types::NodeStatus;
use serde::{Deserialize, Serialize};

/// So many nodes are failed that copies of failed nodes are not replaced: a cut-off of the coordinators or the loss of
/// a whole room is more likely than the death of so many machines. Copying would load the remaining nodes with data
/// that comes back by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WithheldRepair {
    /// Failed nodes that hold copies, and are neither drained nor in maintenance.
    pub failed: u64,
    /// These and the live ones.
    pub of: u64,
}

/// Returns the failed nodes if copies of failed nodes are not replaced now. Nodes without copies, drained nodes and
/// nodes in maintenance are ignored: their stop indicates nothing about the others.
pub fn withheld(state: &ClusterState) -> Option<WithheldRepair> {
    let mut live = state.nodes.len() as u64;
    let mut failed = 0;
    for row in state.nodes.down() {
        live -= 1;
        let counts = !row.node.goal.gives_up_leaderships() && state.partitions.held_on(row.node.id) > 0;
        failed += u64::from(row.node.status == NodeStatus::Failed && counts);
    }
    let of = live + failed;
    (3 * failed > of).then_some(WithheldRepair { failed, of })
}
