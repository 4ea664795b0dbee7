//! Nodes that may take a copy, ordered by zone and need, so that the right one is found without a scan of all of them
//! per copy.

use crate::placement::score::Need;
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use archon_types::{NodeId, Partition, ReplicaState};
use std::collections::{BTreeMap, BTreeSet};

/// Target of a new copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) node: NodeId,
    /// True if another remaining copy stands in the same zone.
    pub(crate) zone_doubled: bool,
}

/// A node that may take copies.
struct EligibleNode<'a> {
    row: &'a NodeRow,
    need: Need,
}

/// The nodes that may still take copies.
pub(crate) struct EligibleNodes<'a> {
    nodes: BTreeMap<NodeId, EligibleNode<'a>>,
    zones: BTreeMap<Option<&'a str>, BTreeSet<(Need, NodeId)>>,
    /// Number of nodes examined for targets, in all searches.
    #[cfg(test)]
    pub(crate) looked: std::cell::Cell<usize>,
}

impl<'a> EligibleNodes<'a> {
    /// Orders these nodes, given in order of registration, by their present number of copies.
    pub(crate) fn new(nodes: impl Iterator<Item = &'a NodeRow>, has: impl Fn(NodeId) -> u32) -> Self {
        let mut eligible = Self {
            nodes: BTreeMap::new(),
            zones: BTreeMap::new(),
            #[cfg(test)]
            looked: std::cell::Cell::new(0),
        };
        for (slot, row) in nodes.enumerate() {
            let id = row.node.id;
            let need = Need { count: has(id), weight: row.node.weight.max(1), slot };
            if row.room_beside(need.count) > 0 {
                eligible.zones.entry(row.node.zone.as_deref()).or_default().insert((need, id));
                eligible.nodes.insert(id, EligibleNode { row, need });
            }
        }
        eligible
    }

    /// Returns the node that should take a copy of this partition: one that holds none of it, in a zone without one if
    /// there is such a node, with the least copies for its weight. Copies on `leaving` nodes are ignored.
    pub(crate) fn target(
        &self,
        state: &ClusterState,
        row: &Partition,
        leaving: impl Fn(NodeId) -> bool,
    ) -> Option<Target> {
        let taken: BTreeSet<&str> = row
            .placements
            .iter()
            .filter(|placement| placement.state != ReplicaState::Unload && !leaving(placement.node))
            .filter_map(|placement| state.node(placement.node).and_then(|row| row.node.zone.as_deref()))
            .collect();
        let best = self.zones.iter().filter_map(|(zone, nodes)| {
            let (need, node) = nodes.iter().find(|(_, node)| {
                #[cfg(test)]
                self.looked.set(self.looked.get() + 1);
                row.placement_on(*node).is_none() && !leaving(*node) && !state.bars(row.id, *node)
            })?;
            Some((zone.is_some_and(|zone| taken.contains(zone)), *need, *node))
        });
        let (zone_doubled, _, node) = best.min()?;
        Some(Target { node, zone_doubled })
    }

    /// Returns true if every node is full.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Counts a copy for this node.
    pub(crate) fn note(&mut self, node: NodeId) {
        let Some(mut eligible) = self.take(node) else { return };
        eligible.need.count += 1;
        if eligible.row.room_beside(eligible.need.count) > 0 {
            self.zones.entry(eligible.row.node.zone.as_deref()).or_default().insert((eligible.need, node));
            self.nodes.insert(node, eligible);
        }
    }

    /// Excludes this node.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.take(node);
    }

    fn take(&mut self, node: NodeId) -> Option<EligibleNode<'a>> {
        let eligible = self.nodes.remove(&node)?;
        if let Some(nodes) = self.zones.get_mut(&eligible.row.node.zone.as_deref()) {
            nodes.remove(&(eligible.need, node));
        }
        Some(eligible)
    }
}
