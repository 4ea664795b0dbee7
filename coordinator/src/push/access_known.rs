//! As of when each node goes by what clients may do: whoever takes a right back wants to know.

use archon_coordinator_core::ClusterState;
use archon_types::{Incarnation, NodeId, Version};
use std::collections::BTreeMap;
use tokio::sync::watch;

/// What lives of nodes have acknowledged.
#[derive(Debug, Default)]
pub(crate) struct AccessKnown(watch::Sender<BTreeMap<NodeId, (Incarnation, Version)>>);

impl AccessKnown {
    /// This life of a node goes by what clients may do as of this version.
    pub(super) fn note(&self, node: NodeId, incarnation: Incarnation, version: Version) {
        self.0.send_if_modified(|known| known.insert(node, (incarnation, version)) != Some((incarnation, version)));
    }

    /// Forgets the nodes that are not to be kept.
    pub(crate) fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        self.0.send_if_modified(|known| {
            let before = known.len();
            known.retain(|node, _| keep(*node));
            known.len() < before
        });
    }

    /// Changes when a node has acknowledged something.
    pub(crate) fn watch(&self) -> watch::Receiver<BTreeMap<NodeId, (Incarnation, Version)>> {
        self.0.subscribe()
    }

    /// The nodes that act and do not go by the rights that there are now.
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
