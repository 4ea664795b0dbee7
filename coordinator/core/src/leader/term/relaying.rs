//! Relays for members without rows of nodes: a participant gets its relays with its duties (PROTOCOL rules 69 and 81).

use crate::state::ClusterState;
use archon_types::{Node, NodeId, NodeStatus, RelayAddress, RelayCandidate, Version, relay_count, relays, relays_of};
use std::collections::BTreeMap;

impl ClusterState {
    /// Returns the number of nodes that relay heartbeats now; 0 in a small cluster, or if relays are disabled.
    pub fn relay_count(&self) -> usize {
        relay_count(self.nodes_alive(), self.settings.relays_from)
    }

    /// Returns the nodes that relay heartbeats now.
    pub fn relaying(&self) -> Vec<&Node> {
        let alive = self.nodes.values().map(|row| &row.node).filter(|node| node.status == NodeStatus::Alive);
        let chosen = relays(self.cluster, alive.map(RelayCandidate::of), self.relay_count());
        chosen.into_iter().filter_map(|relay| self.node(relay.node).map(|row| &row.node)).collect()
    }
}

/// The relaying nodes, cached until the rows of nodes change: finding them examines every node, and each participant
/// asks several times a minute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownRelays {
    /// Version of the rows and setting for which they were found.
    found_for: Option<(Version, u64)>,
    relays: BTreeMap<NodeId, Node>,
}

impl KnownRelays {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the relays of a participant, in order of preference.
    pub fn of(&mut self, state: &ClusterState, member: NodeId) -> Vec<RelayAddress> {
        let wanted = (state.nodes_version, state.settings.relays_from);
        if self.found_for != Some(wanted) {
            self.relays = state.relaying().into_iter().map(|node| (node.id, node.clone())).collect();
            self.found_for = Some(wanted);
        }
        let candidates: Vec<RelayCandidate<'_>> = self.relays.values().map(RelayCandidate::of).collect();
        let zone = state.node(member).and_then(|row| row.node.zone.as_deref());
        let chosen = relays_of(member, zone, &candidates);
        chosen.into_iter().filter_map(|relay| self.relays.get(&relay)).map(RelayAddress::of).collect()
    }
}
