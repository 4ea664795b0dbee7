//! The partition table: which node holds which copy of which partition, who leads, and the delta by which it travels.

use crate::ids::{Epoch, NodeId, PartitionId, PlacementId, TableId, Version};
use crate::limits::EPOCHS_AHEAD_MAX;
use crate::node::Node;
use crate::removed::RemovedNodes;
use crate::slot::{partition_of, slot_of};
use crate::word::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The table that exists from bootstrap; an empty name stands for it.
pub const DEFAULT_TABLE: &str = "default";

words! {
    /// What a replica is to its partition.
    #[derive(Serialize, Deserialize)]
    pub enum ReplicaState: "state of a copy" {
        /// Copying; does not count.
        Load = "load",
        /// In sync; holds every acknowledged write durably; counts.
        Live = "live",
        /// To be deleted.
        Unload = "unload",
    }
}

/// One copy of one partition on one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Placement {
    /// Its number, never reused.
    pub id: PlacementId,
    /// The node that holds it.
    pub node: NodeId,
    /// What it is to its partition.
    pub state: ReplicaState,
}

words! {
    /// Where a partition stands in its life.
    #[derive(Serialize, Deserialize)]
    pub enum PartitionStatus: "partition status" {
        /// No placement yet: too few nodes have registered.
        Unassigned = "unassigned",
        /// A leader is named and has not yet said that it serves.
        Assigned = "assigned",
        /// The leader serves.
        Online = "online",
        /// No leader: no Live replica is reachable.
        Unavailable = "unavailable",
        /// No leader, for an operator has taken it offline.
        Offline = "offline",
    }
}

/// A partition's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// Which partition.
    pub id: PartitionId,
    /// Generation of its leadership.
    pub epoch: Epoch,
    /// Log index of the row's last change.
    pub version: Version,
    /// The placement that leads, always one of the Live ones.
    pub leader: Option<PlacementId>,
    /// Every copy, in order of placement id.
    pub placements: Vec<Placement>,
    /// Where it stands.
    pub status: PartitionStatus,
    /// The least Live replicas with which new writes are admitted; part of the versioned configuration
    /// (PROTOCOL rule 7).
    pub min_in_sync: u8,
}

impl Partition {
    /// Whether an epoch can be true, as far as whoever knows this row can tell: at most [`EPOCHS_AHEAD_MAX`] above the row's.
    pub fn may_reach(&self, epoch: Epoch) -> bool {
        epoch.get().saturating_sub(self.epoch.get()) <= EPOCHS_AHEAD_MAX
    }

    /// The placement with this id.
    pub fn placement(&self, id: PlacementId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.id == id)
    }

    /// The copy on this node, if there is one. Two copies of a partition never share a node.
    pub fn placement_on(&self, node: NodeId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.node == node)
    }

    /// The placement that leads.
    pub fn leader_placement(&self) -> Option<&Placement> {
        self.leader.and_then(|id| self.placement(id))
    }

    /// The copies that are in sync.
    pub fn live(&self) -> impl Iterator<Item = &Placement> {
        self.placements.iter().filter(|placement| placement.state == ReplicaState::Live)
    }
}

words! {
    /// What the partitions of a table are.
    #[derive(Serialize, Deserialize)]
    pub enum Holds: "what a table holds" {
        /// Rows, in copies on nodes of the key-value store.
        Data = "data",
        /// Nothing but who owns each: leases for the participants of another service.
        Lease = "lease",
    }
}

/// A table's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Its number.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// Number of partitions, fixed at creation, `1..=16384`.
    pub partitions: u32,
    /// Copies wanted of each partition; 1 where there is nothing to copy.
    pub replication: u8,
    /// What its partitions are; never changed.
    pub holds: Holds,
    /// Log index of its creation or last change.
    pub version: Version,
}

/// Which tables there are: whoever is told so drops what it knows of every other one that is as old.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TableList {
    /// Log index of the last drop of a table.
    pub version: Version,
    /// The last number that was given to a table. Of tables with higher ones the list says nothing.
    pub last: TableId,
    /// The tables that there are, by number.
    pub tables: Vec<TableId>,
}

impl TableList {
    /// Whether the list says that there was a table of this number and is none any more.
    pub fn lacks(&self, table: TableId) -> bool {
        table <= self.last && self.tables.binary_search(&table).is_err()
    }
}

/// The rows of one table newer than a version, with the nodes newer than it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableDelta {
    /// The table itself.
    pub table: Table,
    /// Every row newer than this is in the delta; zero for the whole table.
    pub since: Version,
    /// The version of the newest row.
    pub version: Version,
    /// Changed partitions.
    pub partitions: Vec<Partition>,
    /// Changed nodes.
    pub nodes: Vec<Node>,
    /// Who is gone, if a node was removed after `since`.
    pub removed: Option<RemovedNodes>,
}

/// The nodes newer than a version, for those who hold several tables and need each node once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeDelta {
    /// Every node newer than this, up to `version`, is in the delta; zero for all nodes.
    pub since: Version,
    /// Up to which version nodes are in it.
    pub version: Version,
    /// Changed nodes.
    pub nodes: Vec<Node>,
    /// Who is gone, if a node was removed after `since`.
    pub removed: Option<RemovedNodes>,
}

/// Where an operation on a key should go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The partition of the key.
    pub partition: PartitionId,
    /// Its epoch, as far as the table knows.
    pub epoch: Epoch,
    /// The node that leads it, or `None` while nobody does.
    pub leader: Option<NodeId>,
}

/// A cached copy of one table, kept up to date by deltas. Newer is never replaced by older.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionTable {
    table: Table,
    version: Version,
    partitions: BTreeMap<u32, Partition>,
    nodes: BTreeMap<NodeId, Node>,
    removed: RemovedNodes,
}

impl PartitionTable {
    /// Builds the cache from a whole table (`since` zero), or `None` if the delta is a partial one.
    pub fn from_whole(delta: TableDelta) -> Option<Self> {
        if delta.since != Version::ZERO {
            return None;
        }
        let removed = delta.removed.unwrap_or_default();
        let nodes = delta.nodes.into_iter().filter(|node| !removed.contains(node.id));
        Some(Self {
            version: delta.version,
            partitions: delta.partitions.into_iter().map(|row| (row.id.index, row)).collect(),
            nodes: nodes.map(|node| (node.id, node)).collect(),
            removed,
            table: delta.table,
        })
    }

    /// Takes in a delta. Returns whether the cache is now at least as new as the delta; `false` means there is a gap
    /// between the two (or another table) and the whole table must be fetched. Rows older than what is held are
    /// ignored.
    pub fn merge(&mut self, delta: TableDelta) -> bool {
        if delta.table.id != self.table.id || delta.since > self.version {
            return false;
        }
        for row in delta.partitions {
            match self.partitions.get(&row.id.index) {
                Some(held) if held.version >= row.version => {}
                _ => {
                    self.partitions.insert(row.id.index, row);
                }
            }
        }
        if self.removed.renew(delta.removed) {
            self.nodes.retain(|id, _| !self.removed.contains(*id));
        }
        for node in delta.nodes {
            match self.nodes.get(&node.id) {
                Some(held) if held.version >= node.version => {}
                _ if self.removed.contains(node.id) => {} // It was late.
                _ => {
                    self.nodes.insert(node.id, node);
                }
            }
        }
        if delta.version > self.version {
            self.version = delta.version;
            self.table = delta.table;
        }
        true
    }

    /// The rows newer than `since`, as a delta for somebody who holds that version.
    pub fn newer_than(&self, since: Version) -> TableDelta {
        TableDelta {
            table: self.table.clone(),
            since,
            version: self.version,
            partitions: self.partitions.values().filter(|row| row.version > since).cloned().collect(),
            nodes: self.nodes.values().filter(|node| node.version > since).cloned().collect(),
            removed: self.removed.newer_than(since),
        }
    }

    /// The table's own row.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The version of the newest row held.
    pub fn version(&self) -> Version {
        self.version
    }

    /// A partition of this table as people name it: `orders/7`. One of another table is named by the numbers of both.
    pub fn partition_name(&self, partition: PartitionId) -> String {
        match partition.table == self.table.id {
            true => format!("{}/{}", self.table.name, partition.index),
            false => partition.to_string(),
        }
    }

    /// The partition of `key`.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        PartitionId::new(self.table.id, partition_of(slot_of(key), self.table.partitions))
    }

    /// Where an operation on `key` should go.
    pub fn route(&self, key: &[u8]) -> Route {
        self.route_partition(self.partition_of(key))
    }

    /// Where an operation on `partition` should go.
    pub fn route_partition(&self, partition: PartitionId) -> Route {
        let row = self.partitions.get(&partition.index);
        Route {
            partition,
            epoch: row.map_or(Epoch::ZERO, |row| row.epoch),
            leader: row.and_then(Partition::leader_placement).map(|placement| placement.node),
        }
    }

    /// A partition's row.
    pub fn partition(&self, index: u32) -> Option<&Partition> {
        self.partitions.get(&index)
    }

    /// Every partition's row, by number.
    pub fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.values()
    }

    /// A node's row.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Every node's row, by number.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(index: u32, version: u64, leader: u64) -> Partition {
        Partition {
            id: PartitionId::new(TableId::new(1), index),
            epoch: Epoch::new(version),
            version: Version::new(version),
            leader: Some(PlacementId::new(leader)),
            placements: vec![Placement {
                id: PlacementId::new(leader),
                node: NodeId::new(leader),
                state: ReplicaState::Live,
            }],
            status: PartitionStatus::Online,
            min_in_sync: 1,
        }
    }

    fn delta(since: u64, version: u64, partitions: Vec<Partition>) -> TableDelta {
        let table = Table {
            id: TableId::new(1),
            name: "default".into(),
            partitions: 2,
            replication: 1,
            holds: Holds::Data,
            version: Version::new(1),
        };
        let (since, version) = (Version::new(since), Version::new(version));
        TableDelta { table, since, version, partitions, nodes: vec![], removed: None }
    }

    #[test]
    fn newer_is_never_replaced_by_older() {
        let mut table = PartitionTable::from_whole(delta(0, 5, vec![row(0, 5, 1), row(1, 4, 2)])).unwrap();
        assert!(table.merge(delta(0, 3, vec![row(0, 3, 9)])));
        assert_eq!(table.partition(0).unwrap().leader, Some(PlacementId::new(1)));
        assert_eq!(table.version(), Version::new(5));
    }

    #[test]
    fn a_gap_is_noticed() {
        let mut table = PartitionTable::from_whole(delta(0, 5, vec![row(0, 5, 1)])).unwrap();
        assert!(!table.merge(delta(6, 8, vec![row(0, 8, 3)])));
        assert!(table.merge(delta(5, 8, vec![row(0, 8, 3)])));
        assert_eq!(table.route_partition(PartitionId::new(TableId::new(1), 0)).leader, Some(NodeId::new(3)));
    }

    #[test]
    fn newer_than_gives_what_is_missing() {
        let table = PartitionTable::from_whole(delta(0, 5, vec![row(0, 5, 1), row(1, 4, 2)])).unwrap();
        assert_eq!(table.newer_than(Version::new(4)).partitions, vec![row(0, 5, 1)]);
        assert_eq!(table.newer_than(Version::ZERO).partitions.len(), 2);
        assert!(PartitionTable::from_whole(table.newer_than(Version::new(4))).is_none());
    }
}
