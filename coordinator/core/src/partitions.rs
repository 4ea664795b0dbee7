//! Every partition's row, with the indexes that keep 100,000 of them cheap: by node, by version, and those that are
//! not simply being served.

use archon_types::{NodeId, Partition, PartitionId, PartitionStatus, ReplicaState, TableId, Version};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The rows of all tables. Serialised as a plain list of rows; the indexes are rebuilt when it is read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "Vec<Partition>")]
pub struct Partitions {
    rows: BTreeMap<PartitionId, Partition>,
    by_node: BTreeMap<NodeId, BTreeSet<PartitionId>>,
    by_version: BTreeSet<(TableId, Version, u16)>,
    leaders: BTreeMap<NodeId, u32>,
    restless: BTreeSet<PartitionId>,
    /// By the number of their copies, whatever the state of these.
    by_copies: BTreeSet<(TableId, usize, u16)>,
}

impl Partitions {
    /// A partition's row.
    pub fn get(&self, id: PartitionId) -> Option<&Partition> {
        self.rows.get(&id)
    }

    /// Every row, by table and number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Partition> {
        self.rows.values()
    }

    /// The rows of one table, by number.
    pub fn of_table(&self, table: TableId) -> impl Iterator<Item = &Partition> {
        self.rows.range(PartitionId::new(table, 0)..=PartitionId::new(table, u16::MAX)).map(|(_, row)| row)
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows with a copy on `node`, whatever its state, by table and number.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = &Partition> {
        self.by_node.get(&node).into_iter().flatten().filter_map(|id| self.rows.get(id))
    }

    /// How many copies stand on `node`, whatever their state.
    pub fn count_on(&self, node: NodeId) -> u32 {
        self.by_node.get(&node).map_or(0, |set| u32::try_from(set.len()).unwrap_or(u32::MAX))
    }

    /// How many copies `node` holds or is loading; those it is to delete no longer count.
    pub fn held_on(&self, node: NodeId) -> u32 {
        let stays = |row: &&Partition| row.placement_on(node).is_some_and(|copy| copy.state != ReplicaState::Unload);
        u32::try_from(self.on_node(node).filter(stays).count()).unwrap_or(u32::MAX)
    }

    /// How many partitions `node` leads.
    pub fn leaders_on(&self, node: NodeId) -> u32 {
        self.leaders.get(&node).copied().unwrap_or(0)
    }

    /// The rows that are not simply Online with all copies Live: whatever a control turn may have to act on.
    pub fn restless(&self) -> impl Iterator<Item = &Partition> {
        self.restless.iter().filter_map(|id| self.rows.get(id))
    }

    /// A table's rows with fewer copies than that, whatever their state.
    pub fn with_copies_below(&self, table: TableId, copies: usize) -> impl Iterator<Item = &Partition> {
        self.with_copies(table, (table, 0, 0)..(table, copies, 0))
    }

    /// A table's rows with more copies than that, whatever their state.
    pub fn with_copies_above(&self, table: TableId, copies: usize) -> impl Iterator<Item = &Partition> {
        self.with_copies(table, (table, copies.saturating_add(1), 0)..(table, usize::MAX, u16::MAX))
    }

    fn with_copies(&self, table: TableId, range: Range<(TableId, usize, u16)>) -> impl Iterator<Item = &Partition> {
        let ids = self.by_copies.range(range).map(move |(_, _, index)| PartitionId::new(table, *index));
        ids.filter_map(|id| self.rows.get(&id))
    }

    /// The version of a table's newest row, zero if it has none.
    pub fn newest(&self, table: TableId) -> Version {
        let range = (table, Version::ZERO, 0)..=(table, Version::new(u64::MAX), u16::MAX);
        self.by_version.range(range).next_back().map_or(Version::ZERO, |(_, version, _)| *version)
    }

    /// A table's rows newer than `since`, oldest change first.
    pub fn newer_than(&self, table: TableId, since: Version) -> impl Iterator<Item = &Partition> {
        let after = (table, Version::new(since.get().saturating_add(1)), 0);
        let last = (table, Version::new(u64::MAX), u16::MAX);
        // At the very end of the range there is nothing newer, and `after > last` cannot occur.
        self.by_version
            .range(after..=last)
            .filter_map(|(table, _, index)| self.rows.get(&PartitionId::new(*table, *index)))
    }

    /// Adds or replaces a row.
    pub(crate) fn insert(&mut self, row: Partition) {
        if let Some(old) = self.rows.remove(&row.id) {
            self.unindex(&old);
        }
        self.index(&row);
        self.rows.insert(row.id, row);
    }

    fn index(&mut self, row: &Partition) {
        for placement in &row.placements {
            self.by_node.entry(placement.node).or_default().insert(row.id);
        }
        if let Some(leader) = row.leader_placement() {
            *self.leaders.entry(leader.node).or_default() += 1;
        }
        self.by_version.insert((row.id.table, row.version, row.id.index));
        self.by_copies.insert((row.id.table, row.placements.len(), row.id.index));
        if is_restless(row) {
            self.restless.insert(row.id);
        }
    }

    fn unindex(&mut self, row: &Partition) {
        for placement in &row.placements {
            if let Some(set) = self.by_node.get_mut(&placement.node) {
                set.remove(&row.id);
                if set.is_empty() {
                    self.by_node.remove(&placement.node);
                }
            }
        }
        if let Some(leader) = row.leader_placement()
            && let Some(count) = self.leaders.get_mut(&leader.node)
        {
            *count -= 1;
            if *count == 0 {
                self.leaders.remove(&leader.node);
            }
        }
        self.by_version.remove(&(row.id.table, row.version, row.id.index));
        self.by_copies.remove(&(row.id.table, row.placements.len(), row.id.index));
        self.restless.remove(&row.id);
    }
}

fn is_restless(row: &Partition) -> bool {
    row.status != PartitionStatus::Online
        || row.leader.is_none()
        || row.placements.iter().any(|placement| placement.state != ReplicaState::Live)
}

impl From<Vec<Partition>> for Partitions {
    fn from(rows: Vec<Partition>) -> Self {
        let mut partitions = Self::default();
        for row in rows {
            partitions.insert(row);
        }
        partitions
    }
}

impl Serialize for Partitions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.values())
    }
}
