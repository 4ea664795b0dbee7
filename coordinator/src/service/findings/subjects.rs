//! Subjects of reasons and events, by number and name.

use archon_coordinator_core::ClusterState;
use archon_types::subject::{NodeName, Subject};
use archon_types::{NodeId, PartitionId, TableId};

/// Returns a node as a subject.
pub(in crate::service) fn node(state: &ClusterState, id: NodeId) -> Subject {
    Subject::Node { node_id: id.get(), node: called(state, id) }
}

/// Returns a node's name; its number if it was removed. For texts that already contain the word node.
fn called(state: &ClusterState, id: NodeId) -> String {
    state.node(id).map_or_else(|| id.to_string(), |row| row.node.name.clone())
}

/// Returns a table as a subject.
pub(in crate::service) fn table(state: &ClusterState, id: TableId) -> Subject {
    Subject::Table { table_id: id.get(), table: table_name(state, id) }
}

/// Returns a partition as a subject.
pub(in crate::service) fn partition(state: &ClusterState, id: PartitionId) -> Subject {
    Subject::Partition { table_id: id.table.get(), table: table_name(state, id.table), partition: id.index }
}

/// Returns a node's number and name.
pub(in crate::service) fn node_name(state: &ClusterState, id: NodeId) -> NodeName {
    NodeName { node_id: id.get(), node: state.node_name(id) }
}

/// Returns a table's name; its number if it was dropped and its events are no longer kept.
pub(in crate::service) fn table_name(state: &ClusterState, id: TableId) -> String {
    state.table_name(id).map_or_else(|| id.to_string(), str::to_owned)
}

/// Returns the cluster's UUID; empty before bootstrap.
pub(crate) fn cluster_text(state: &ClusterState) -> String {
    if state.is_bootstrapped() { state.cluster.to_string() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::findings::events;
    use archon_coordinator_core::Actor;

    #[test]
    fn removed_node_is_named_by_its_number() {
        let (state, removed) = (ClusterState::new(), NodeId::new(5));
        assert_eq!(node(&state, removed).to_string(), "node 5");
        assert_eq!(events::cause(&state, &Actor::Node(removed)).to_string(), "node 5");
    }
}
