//! Partition table, as cached by nodes and clients: maps keys to partitions and their leaders.

use crate::ids::{Epoch, NodeId, PartitionId, Version};
use crate::members::node::Node;
use crate::tables::key_range::{KeyRange, ScanOrder};
use crate::tables::partition::Partition;
use crate::tables::removed::RemovedNodes;
use crate::tables::slot::{partition_of, slot_of};
use crate::tables::table::{Keys, Table, TableDelta};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Destination of an operation on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Partition of the key.
    pub partition: PartitionId,
    /// Epoch of the partition, as far as the table knows.
    pub epoch: Epoch,
    /// Leading node; `None` while the partition has no leader.
    pub leader: Option<NodeId>,
}

/// Cached copy of one table, updated by deltas. Newer rows are never replaced by older ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionTable {
    table: Table,
    version: Version,
    partitions: BTreeMap<u32, Partition>,
    /// Partitions by the begin of their ranges, in a table by ranges.
    begins: BTreeMap<Bytes, u32>,
    nodes: BTreeMap<NodeId, Node>,
    removed: RemovedNodes,
}

impl PartitionTable {
    /// Builds the cache from a whole table (`since` zero); `None` if the delta is partial.
    pub fn from_whole(delta: TableDelta) -> Option<Self> {
        if delta.since != Version::ZERO {
            return None;
        }
        let removed = delta.removed.unwrap_or_default();
        let nodes = delta.nodes.into_iter().filter(|node| !removed.contains(node.id));
        let mut table = Self {
            version: delta.version,
            partitions: BTreeMap::new(),
            begins: BTreeMap::new(),
            nodes: nodes.map(|node| (node.id, node)).collect(),
            removed,
            table: delta.table,
        };
        delta.partitions.into_iter().for_each(|row| table.take(row));
        Some(table)
    }

    /// Applies a delta. Returns true if the cache is now at least as new as the delta; `false` means there is a gap
    /// between the two (or another table) and the whole table must be fetched. Rows older than the cached ones are
    /// ignored.
    pub fn merge(&mut self, delta: TableDelta) -> bool {
        if delta.table.id != self.table.id || delta.since > self.version {
            return false;
        }
        // The cache has all rows up to this version: an older row of a partition that is not cached belongs to one that
        // was merged away.
        let known = if self.table.keys.is_range() { self.version } else { Version::ZERO };
        for row in delta.partitions {
            if row.version > known || self.partitions.contains_key(&row.id.index) {
                self.take(row);
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

    /// Stores a row that is newer than the cached one. In a table by ranges, partitions that began within its range
    /// have been merged into it, unless their rows are newer still. A range that reaches into this one is no such sign,
    /// because the row that ends it at this one's begin may come later.
    fn take(&mut self, row: Partition) {
        let index = row.id.index;
        if self.partitions.get(&index).is_some_and(|held| held.version >= row.version) {
            return;
        }
        if self.table.keys.is_range() {
            let older = |begun: &u32| self.partitions.get(begun).is_none_or(|held| held.version < row.version);
            let within = self.begins.range::<[u8], _>((Bound::Included(&row.range.begin[..]), Bound::Unbounded));
            let within = within.take_while(|(begin, _)| row.range.contains(begin));
            let merged: Vec<(Bytes, u32)> =
                within.map(|(begin, of)| (begin.clone(), *of)).filter(|(_, of)| older(of)).collect();
            for (begin, of) in merged {
                self.begins.remove(&begin);
                self.partitions.remove(&of);
            }
            if let Some(held) = self.partitions.get(&index)
                && self.begins.get(&held.range.begin) == Some(&index)
            {
                self.begins.remove(&held.range.begin);
            }
            if self.begins.contains_key(&row.range.begin) {
                return; // The partition that begins there is newer: this one has been merged away.
            }
            self.begins.insert(row.range.begin.clone(), index);
        }
        self.partitions.insert(index, row);
    }

    /// Returns the rows newer than `since`, as a delta for a holder of that version.
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

    /// Returns the row of the table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the version of the newest cached row.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the display name of a partition of this table: `orders/7`. A partition of another table is named by the
    /// numbers of both.
    pub fn partition_name(&self, partition: PartitionId) -> String {
        match partition.table == self.table.id {
            true => format!("{}/{}", self.table.name, partition.index),
            false => partition.to_string(),
        }
    }

    /// Returns the partition of `key`. In a table by ranges, it is the known partition with the greatest begin not
    /// above the key. So a table with few known rows has no gaps: at worst the request goes to a partition that knows
    /// the right one.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        let index = match self.table.keys {
            Keys::Hash { partitions } => partition_of(slot_of(key), partitions),
            Keys::Range { .. } => self.last_begun(Bound::Included(key)),
        };
        PartitionId::new(self.table.id, index)
    }

    /// Returns the partition of the greatest keys below `end`, or of the greatest keys of all without one. For tables
    /// by ranges.
    fn partition_below(&self, end: Option<&[u8]>) -> PartitionId {
        PartitionId::new(self.table.id, self.last_begun(end.map_or(Bound::Unbounded, Bound::Excluded)))
    }

    /// Returns the partition of the first of these keys in this order. For tables by ranges.
    pub fn first_of(&self, keys: &KeyRange, order: ScanOrder) -> PartitionId {
        match order {
            ScanOrder::Ascending => self.partition_of(&keys.begin),
            ScanOrder::Descending => self.partition_below(keys.end.as_deref()),
        }
    }

    fn last_begun(&self, upto: Bound<&[u8]>) -> u32 {
        let begun = self.begins.range::<[u8], _>((Bound::Unbounded, upto)).next_back();
        begun.or_else(|| self.begins.first_key_value()).map_or(0, |(_, index)| *index)
    }

    /// Returns the destination of an operation on `key`.
    pub fn route(&self, key: &[u8]) -> Route {
        self.route_partition(self.partition_of(key))
    }

    /// Returns the destination of an operation on `partition`.
    pub fn route_partition(&self, partition: PartitionId) -> Route {
        let row = self.partitions.get(&partition.index);
        Route {
            partition,
            epoch: row.map_or(Epoch::ZERO, |row| row.epoch),
            leader: row.and_then(Partition::leader_placement).map(|placement| placement.node),
        }
    }

    /// Returns the row of a partition.
    pub fn partition(&self, index: u32) -> Option<&Partition> {
        self.partitions.get(&index)
    }

    /// Returns the rows of all partitions, by number.
    pub fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.values()
    }

    /// Returns the row of a node.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Returns the rows of all nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PlacementId, TableId};
    use crate::tables::partition::{PartitionStatus, Placement, ReplicaState};
    use crate::tables::range_limits::RangeLimits;
    use crate::tables::table::TableContent;

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
            range: KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        }
    }

    fn delta(since: u64, version: u64, partitions: Vec<Partition>) -> TableDelta {
        let table = Table {
            id: TableId::new(1),
            name: "default".into(),
            keys: Keys::Hash { partitions: 2 },
            replication: 1,
            holds: TableContent::Data,
            version: Version::new(1),
        };
        let (since, version) = (Version::new(since), Version::new(version));
        TableDelta { table, since, version, partitions, nodes: vec![], removed: None }
    }

    #[test]
    fn newer_rows_are_never_replaced_by_older_ones() {
        let mut table = PartitionTable::from_whole(delta(0, 5, vec![row(0, 5, 1), row(1, 4, 2)])).unwrap();
        assert!(table.merge(delta(0, 3, vec![row(0, 3, 9)])));
        assert_eq!(table.partition(0).unwrap().leader, Some(PlacementId::new(1)));
        assert_eq!(table.version(), Version::new(5));
    }

    #[test]
    fn gap_between_deltas_is_reported() {
        let mut table = PartitionTable::from_whole(delta(0, 5, vec![row(0, 5, 1)])).unwrap();
        assert!(!table.merge(delta(6, 8, vec![row(0, 8, 3)])));
        assert!(table.merge(delta(5, 8, vec![row(0, 8, 3)])));
        assert_eq!(table.route_partition(PartitionId::new(TableId::new(1), 0)).leader, Some(NodeId::new(3)));
    }

    #[test]
    fn newer_than_returns_the_missing_rows() {
        let table = PartitionTable::from_whole(delta(0, 5, vec![row(0, 5, 1), row(1, 4, 2)])).unwrap();
        assert_eq!(table.newer_than(Version::new(4)).partitions, vec![row(0, 5, 1)]);
        assert_eq!(table.newer_than(Version::ZERO).partitions.len(), 2);
        assert!(PartitionTable::from_whole(table.newer_than(Version::new(4))).is_none());
    }

    fn ranged(index: u32, version: u64, begin: &'static str, end: &'static str) -> Partition {
        let end = (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes()));
        let range = KeyRange { begin: Bytes::from_static(begin.as_bytes()), end };
        Partition { range, ..row(index, version, 1) }
    }

    fn ranges(since: u64, version: u64, partitions: Vec<Partition>) -> TableDelta {
        let mut delta = delta(since, version, partitions);
        delta.table.keys = Keys::Range { next: 9, limits: RangeLimits::NONE };
        delta
    }

    fn of(table: &PartitionTable, key: &str) -> u32 {
        table.partition_of(key.as_bytes()).index
    }

    #[test]
    fn key_belongs_to_range_with_greatest_begin_not_above_it() {
        let whole = ranges(0, 5, vec![ranged(0, 5, "", "g"), ranged(1, 5, "g", "p"), ranged(2, 5, "p", "")]);
        let table = PartitionTable::from_whole(whole).unwrap();
        assert_eq!((of(&table, "a"), of(&table, "g"), of(&table, "oz"), of(&table, "z")), (0, 1, 1, 2));
        let below = |end: Option<&str>| table.partition_below(end.map(str::as_bytes)).index;
        assert_eq!((below(Some("g")), below(Some("g1")), below(None)), (0, 1, 2));
    }

    /// The rows of a split arrive in any order; until both are there, requests go to the partition that is known.
    #[test]
    fn split_leaves_no_gap_in_either_order_of_rows() {
        let rows = [ranged(0, 8, "", "m"), ranged(1, 8, "m", "")];
        for first in 0..2 {
            let mut table = PartitionTable::from_whole(ranges(0, 5, vec![ranged(0, 5, "", "")])).unwrap();
            assert!(table.merge(ranges(5, 7, vec![rows[first].clone()])));
            assert_eq!((of(&table, "a"), of(&table, "z")), if first == 0 { (0, 0) } else { (0, 1) });
            assert!(table.merge(ranges(5, 8, vec![rows[1 - first].clone()])));
            assert_eq!((of(&table, "a"), of(&table, "z"), table.partitions().count()), (0, 1, 2));
        }
    }

    #[test]
    fn merged_partition_is_removed_permanently() {
        let before = vec![ranged(0, 5, "", "g"), ranged(1, 6, "g", "p"), ranged(2, 5, "p", "")];
        let mut table = PartitionTable::from_whole(ranges(0, 6, before)).unwrap();
        assert!(table.merge(ranges(6, 9, vec![ranged(0, 9, "", "p")])));
        assert_eq!((of(&table, "h"), table.partitions().count()), (0, 2));
        // Split again at the begin of the removed partition, whose row comes late.
        assert!(table.merge(ranges(6, 11, vec![ranged(0, 11, "", "g"), ranged(3, 11, "g", "p")])));
        assert!(table.merge(ranges(6, 7, vec![ranged(1, 7, "g", "p")])));
        assert_eq!((of(&table, "h"), table.partition(1)), (3, None));
    }
}
