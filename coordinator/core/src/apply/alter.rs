//! What an operator changes of nodes that are there.

use super::{Entry, not_found, stale};
use crate::command::Response;
use crate::events::EventKind;
use crate::state::ClusterState;
use archon_types::{ErrorDetail, NodeId, NodeTraits, Version};

/// A node's zone, weight and limit.
pub(super) fn node(
    state: &mut ClusterState,
    entry: Entry<'_>,
    node: NodeId,
    if_version: Version,
    traits: &NodeTraits,
) -> Result<Response, ErrorDetail> {
    traits.check()?;
    let Some(row) = state.node(node).map(|row| &row.node) else {
        return Err(not_found(format!("there is no node {node}")));
    };
    if row.version != if_version {
        return Err(stale(&row.name, row.version, if_version));
    }
    let before = row.traits();
    if before != *traits {
        state.nodes.update(node, |row| {
            row.node.set_traits(traits.clone());
            row.node.version = entry.version();
        });
        state.nodes_version = entry.version();
        entry.note(state, EventKind::NodeAltered { node, before, after: traits.clone() });
    }
    entry.done()
}
