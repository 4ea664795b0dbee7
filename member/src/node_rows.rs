//! Rows of nodes as a member holds them, and their meaning: relays, probe targets, and fenced incarnations (PROTOCOL
//! rules 69, 72 and 73).

use archon_types::{
    ClusterId, FencingProof, Incarnation, Node, NodeDelta, NodeId, NodeStatus, RelayCandidate, RemovedNodes, Version,
    doors_of, relays, relays_of,
};
use std::collections::BTreeMap;

/// Rows of all nodes. Newer rows are never replaced by older ones, and removed nodes do not come back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeRows {
    nodes: BTreeMap<NodeId, Node>,
    version: Version,
    /// Removed nodes, as of the last removal received.
    removed: RemovedNodes,
}

impl NodeRows {
    /// Takes in rows. Returns false and changes nothing if rows between the held ones and these are missing.
    pub fn merge(&mut self, delta: NodeDelta) -> bool {
        if delta.since > self.version {
            return false;
        }
        self.hold(delta.version);
        if self.removed.renew(delta.removed) {
            self.nodes.retain(|id, _| !self.removed.contains(*id));
        }
        for node in delta.nodes {
            // Otherwise it was late.
            let newer = self.nodes.get(&node.id).is_none_or(|held| held.version < node.version);
            if newer && !self.removed.contains(node.id) {
                self.nodes.insert(node.id, node);
            }
        }
        true
    }

    /// Records that all rows up to this version are held.
    pub fn hold(&mut self, version: Version) {
        self.version = self.version.max(version);
    }

    /// Returns the version up to which all rows are held.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the nodes that were removed from the cluster for good.
    pub const fn removed(&self) -> &RemovedNodes {
        &self.removed
    }

    /// Returns the row of a node.
    pub fn get(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    /// Returns all rows, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Returns the rows of nodes that are alive.
    pub fn alive(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.values().filter(|node| node.status == NodeStatus::Alive)
    }

    /// Returns the relays of a member's heartbeats, in the order of its attempts, if `count` nodes relay (rule 69).
    pub fn relays_of(&self, cluster: ClusterId, member: NodeId, count: usize) -> impl Iterator<Item = &Node> {
        let relays = relays(cluster, self.alive().map(RelayCandidate::of), count);
        let zone = self.get(member).and_then(|node| node.zone.as_deref());
        relays_of(member, zone, &relays).into_iter().filter_map(move |relay| self.get(relay))
    }

    /// Returns the nodes that this one probes (rule 73).
    pub fn probed_by(&self, cluster: ClusterId, prober: NodeId) -> impl Iterator<Item = &Node> {
        let probed = doors_of(cluster, prober, self.alive().map(RelayCandidate::of));
        probed.into_iter().filter_map(move |node| self.get(node))
    }

    /// Returns the notice that an incarnation of a node is fenced, if it is (rule 72).
    pub fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof> {
        if self.removed.contains(node) {
            return Some(FencingProof { node, incarnation, version: self.removed.version });
        }
        self.get(node)?.over(incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Millis, NodeGoal};

    fn row(id: u64, version: u64) -> Node {
        Node {
            id: NodeId::new(id),
            name: format!("n{id}"),
            address: format!("n{id}:7000"),
            incarnation: Incarnation::new(version),
            status: NodeStatus::Alive,
            goal: NodeGoal::Serve,
            zone: None,
            weight: 100,
            partitions_max: None,
            version: Version::new(version),
            since: Millis::ZERO,
            redis: None,
        }
    }

    fn delta(since: u64, version: u64, nodes: Vec<Node>) -> NodeDelta {
        NodeDelta { since: Version::new(since), version: Version::new(version), nodes, removed: None }
    }

    fn held(count: u64) -> NodeRows {
        let mut rows = NodeRows::default();
        assert!(rows.merge(delta(0, 5, (1..=count).map(|id| row(id, 5)).collect())));
        rows
    }

    #[test]
    fn gap_and_late_rows_change_nothing() {
        let mut rows = held(2);
        let before = rows.clone();
        assert!(!rows.merge(delta(6, 7, vec![row(1, 7)])), "rows of version 6 are missing");
        assert!(rows.merge(delta(0, 4, vec![row(2, 4)])));
        assert_eq!(rows, before);
        assert!(rows.merge(delta(5, 7, vec![row(2, 7)])));
        assert_eq!((rows.version(), rows.get(NodeId::new(2))), (Version::new(7), Some(&row(2, 7))));
    }

    #[test]
    fn removed_node_does_not_come_back_and_is_fenced() {
        let mut rows = held(3);
        let removed = RemovedNodes::all_but([1, 3].map(NodeId::new).into_iter(), NodeId::new(3), Version::new(6));
        assert!(rows.merge(NodeDelta { removed: Some(removed), ..delta(5, 6, vec![row(2, 6)]) }));
        assert_eq!(rows.all().map(|node| node.id.get()).collect::<Vec<_>>(), [1, 3]);
        let (node, incarnation) = (NodeId::new(2), Incarnation::new(5));
        assert_eq!(rows.over(node, incarnation), Some(FencingProof { node, incarnation, version: Version::new(6) }));
    }

    #[test]
    fn incarnation_is_fenced_by_a_row_of_a_later_one() {
        let rows = held(1);
        assert_eq!(rows.over(NodeId::new(1), Incarnation::new(5)), None);
        assert!(rows.over(NodeId::new(1), Incarnation::new(4)).is_some());
        assert_eq!(rows.over(NodeId::new(9), Incarnation::new(4)), None, "an unknown node");
    }

    #[test]
    fn failed_nodes_neither_relay_nor_are_probed() {
        let mut rows = held(4);
        assert!(rows.merge(delta(5, 6, vec![Node { status: NodeStatus::Failed, ..row(4, 6) }])));
        for member in (1..=4).map(NodeId::new) {
            assert_eq!(rows.relays_of(ClusterId::NIL, member, 4).filter(|relay| relay.id == NodeId::new(4)).count(), 0);
            assert_eq!(rows.probed_by(ClusterId::NIL, member).filter(|node| node.id == NodeId::new(4)).count(), 0);
        }
        let probed: usize = (1..=4).map(|prober| rows.probed_by(ClusterId::NIL, NodeId::new(prober)).count()).sum();
        assert_eq!(probed, 6, "each live node by the two others");
    }
}
