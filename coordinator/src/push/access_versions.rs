//! Versions of client rights that each node applies, for callers that wait until a revocation is effective.

use archon_coordinator_core::ClusterState;
use archon_types::{Incarnation, NodeId, Version};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// Versions that incarnations of nodes have acknowledged.
#[derive(Debug, Default)]
pub(crate) struct AccessVersions(watch::Sender<BTreeMap<NodeId, (Incarnation, Version)>>);

impl AccessVersions {
    /// Records that this incarnation of a node applies the rights of this version.
    pub(super) fn note(&self, node: NodeId, incarnation: Incarnation, version: Version) {
        self.0.send_if_modified(|known| known.insert(node, (incarnation, version)) != Some((incarnation, version)));
    }

    /// Forgets the nodes for which `keep` is false.
    pub(crate) fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        self.0.send_if_modified(|known| {
            let before = known.len();
            known.retain(|node, _| keep(*node));
            known.len() < before
        });
    }

    /// Returns a receiver that changes when a node has acknowledged something.
    pub(crate) fn watch(&self) -> watch::Receiver<BTreeMap<NodeId, (Incarnation, Version)>> {
        self.0.subscribe()
    }

    /// Returns the active nodes that do not apply the present rights.
    pub(crate) fn behind(&self, state: &ClusterState) -> Vec<NodeId> {
        let known = self.0.borrow();
        let acting = state.nodes.values().filter(|row| row.is_active());
        let lacks = |id: NodeId, life: Incarnation| {
            known.get(&id).is_none_or(|(of, version)| *of != life || *version < state.access_version)
        };
        acting
            .map(|row| (row.node.id, row.node.incarnation))
            .filter(|(id, life)| lacks(*id, *life))
            .map(|(id, _)| id)
            .collect()
    }
}
