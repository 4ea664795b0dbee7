//! What reasons and events are about, by number and name.

use archon_coordinator_core::ClusterState;
use archon_proto::v1;
use archon_types::subject::Subject;
use archon_types::{NodeId, PartitionId, TableId};

/// A node.
pub(super) fn node(state: &ClusterState, id: NodeId) -> Subject {
    Subject::Node { node_id: id.get(), node: state.node_name(id) }
}

/// A table.
pub(super) fn table(state: &ClusterState, id: TableId) -> Subject {
    Subject::Table { table_id: id.get(), table: table_name(state, id) }
}

/// A partition.
pub(super) fn partition(state: &ClusterState, id: PartitionId) -> Subject {
    Subject::Partition { table_id: id.table.get(), table: table_name(state, id.table), partition: id.index }
}

/// A node's number and name.
pub(super) fn node_name(state: &ClusterState, id: NodeId) -> v1::NodeName {
    v1::NodeName { id: id.get(), name: state.node_name(id) }
}

/// A table's name; its number if it is gone.
pub(super) fn table_name(state: &ClusterState, id: TableId) -> String {
    state.tables.get(&id).map_or_else(|| id.to_string(), |row| row.name.clone())
}
