//! Names of nodes and of the cluster in answers.

use archon_coordinator_core::ClusterState;
use archon_types::NodeId;
use archon_types::subject::NodeName;

/// Returns a node's number and name.
pub(in crate::service) fn node_name(state: &ClusterState, id: NodeId) -> NodeName {
    NodeName { node_id: id.get(), node: state.node_name(id) }
}

/// Returns the cluster's UUID; empty before bootstrap.
pub(crate) fn cluster_text(state: &ClusterState) -> String {
    if state.is_bootstrapped() { state.cluster.to_string() } else { String::new() }
}
