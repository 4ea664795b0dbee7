//! Copies of removed partitions (dropped, merged, abandoned splits) which their nodes have not deleted yet.

use archon_types::{NodeId, PartitionId, PlacementId};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Condemned copies by the node that must delete them, now or when it returns. Serialised as a plain map.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<NodeId, BTreeMap<PlacementId, PartitionId>>")]
pub struct Tombstones {
    /// Contains no node without a copy.
    by_node: BTreeMap<NodeId, BTreeMap<PlacementId, PartitionId>>,
    len: usize,
}

impl Tombstones {
    /// Returns the number of copies.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of copies on a node.
    pub fn count_on(&self, node: NodeId) -> usize {
        self.by_node.get(&node).map_or(0, BTreeMap::len)
    }

    /// Returns true if this copy on this node is condemned.
    pub fn contains(&self, node: NodeId, placement: PlacementId) -> bool {
        self.by_node.get(&node).is_some_and(|copies| copies.contains_key(&placement))
    }

    /// Returns the copies on a node, in order of their numbers, with their former partitions.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = (PlacementId, PartitionId)> + use<'_> {
        self.by_node.get(&node).into_iter().flatten().map(|(placement, partition)| (*placement, *partition))
    }

    /// Returns the nodes that have any, in order of registration, with the number of copies.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, usize)> + use<'_> {
        self.by_node.iter().map(|(node, copies)| (*node, copies.len()))
    }

    /// Returns every copy, by node and number.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, PlacementId, PartitionId)> + use<'_> {
        self.by_node
            .iter()
            .flat_map(|(node, copies)| copies.iter().map(move |(placement, partition)| (*node, *placement, *partition)))
    }

    pub(crate) fn insert(&mut self, node: NodeId, placement: PlacementId, partition: PartitionId) {
        if self.by_node.entry(node).or_default().insert(placement, partition).is_none() {
            self.len += 1;
        }
    }

    /// Forgets a copy. Returns its former partition.
    pub(crate) fn remove(&mut self, node: NodeId, placement: PlacementId) -> Option<PartitionId> {
        let copies = self.by_node.get_mut(&node)?;
        let partition = copies.remove(&placement)?;
        if copies.is_empty() {
            self.by_node.remove(&node);
        }
        self.len -= 1;
        Some(partition)
    }
}

impl FromIterator<(NodeId, PlacementId, PartitionId)> for Tombstones {
    fn from_iter<I: IntoIterator<Item = (NodeId, PlacementId, PartitionId)>>(copies: I) -> Self {
        let mut condemned = Self::default();
        for (node, placement, partition) in copies {
            condemned.insert(node, placement, partition);
        }
        condemned
    }
}

impl From<BTreeMap<NodeId, BTreeMap<PlacementId, PartitionId>>> for Tombstones {
    fn from(by_node: BTreeMap<NodeId, BTreeMap<PlacementId, PartitionId>>) -> Self {
        let of_node = |(node, copies): (NodeId, BTreeMap<PlacementId, PartitionId>)| {
            copies.into_iter().map(move |(placement, partition)| (node, placement, partition))
        };
        by_node.into_iter().flat_map(of_node).collect()
    }
}

impl Serialize for Tombstones {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_node.serialize(serializer)
    }
}
