//! Who relays, for those who hold no rows of nodes: a participant is told its relays with its duties (PROTOCOL rules 69 and 81).

use crate::state::ClusterState;
use archon_types::{Node, NodeId, NodeStatus, RelayAddress, RelayCandidate, Version, relay_count, relays, relays_of};
use std::collections::BTreeMap;

impl ClusterState {
    /// The nodes that relay heartbeats now.
    pub fn relaying(&self) -> Vec<&Node> {
        let alive = self.nodes.values().map(|row| &row.node).filter(|node| node.status == NodeStatus::Alive);
        let count = relay_count(self.nodes_alive(), self.settings.relays_from);
        let chosen = relays(self.cluster, alive.map(RelayCandidate::of), count);
        chosen.into_iter().filter_map(|relay| self.node(relay.node).map(|row| &row.node)).collect()
    }
}

/// The nodes that relay, kept for as long as the rows of nodes stay as they are: to find them every node is looked at, and each
/// participant asks several times a minute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownRelays {
    /// Of which rows, and by which setting.
    found_for: Option<(Version, u64)>,
    relays: BTreeMap<NodeId, Node>,
}

impl KnownRelays {
    /// None was asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The relays of a participant, the one that is to be tried first at the front.
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
