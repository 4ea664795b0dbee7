//! Rows of partitions, with the indexes that keep a million of them cheap: by node, by version, by unfinished work. The
//! work for each change and in each turn uses an index, never all rows.
//!
//! The rows stand in chunks that are shared with images of them (for snapshots): taking an image costs a pointer per
//! chunk, and a chunk is copied when a row in it changes while an image holds it.

use archon_types::{NodeId, Partition, PartitionId, PartitionStatus, ReplicaState, TableId, Version, mixed};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Partition numbers per chunk: the maximum number of rows that a change copies.
const CHUNK_NUMBERS: u32 = 64;

/// Existing rows of one table with neighbouring numbers, by number.
type Chunk = Vec<Partition>;

/// The rows of all tables. Serialised as a plain list of rows; reading rebuilds the indexes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "Vec<Partition>")]
pub struct Partitions {
    chunks: BTreeMap<(TableId, u32), Arc<Chunk>>,
    count: usize,
    /// Bytes of the keys at which the ranges of all tables begin.
    split_keys_bytes: usize,
    /// Number of partitions of each table.
    counts: BTreeMap<TableId, u32>,
    by_node: BTreeMap<NodeId, BTreeSet<PartitionId>>,
    by_version: BTreeSet<(TableId, Version, u32)>,
    newest: BTreeMap<TableId, Version>,
    /// By node: changes with every change of a row that has, had or gets a copy there.
    marks: BTreeMap<NodeId, u64>,
    leaders: BTreeMap<NodeId, u32>,
    /// Copies to be deleted.
    unloading: BTreeMap<NodeId, u32>,
    /// Partitions without copies yet.
    unassigned: BTreeSet<PartitionId>,
    /// Assigned partitions without a leader.
    leaderless: BTreeSet<PartitionId>,
    /// The same by the holders of their copies.
    leaderless_on: BTreeMap<NodeId, BTreeSet<PartitionId>>,
    /// Partitions that are not Online for any reason.
    not_online: BTreeSet<PartitionId>,
    /// Partitions with a copy that is not Live.
    unsettled: BTreeSet<PartitionId>,
    /// Partitions that are being split.
    splitting: BTreeSet<PartitionId>,
    /// Partitions that absorb their right neighbours.
    merging: BTreeSet<PartitionId>,
    /// Assigned partitions by the number of their copies in any state.
    by_copies: BTreeSet<(TableId, usize, u32)>,
}

impl Partitions {
    /// Returns a partition's row.
    pub fn get(&self, id: PartitionId) -> Option<&Partition> {
        looked_at(1);
        let chunk = self.chunks.get(&chunk_of(id))?;
        chunk.binary_search_by_key(&id.index, |row| row.id.index).ok().and_then(|place| chunk.get(place))
    }

    /// Returns every row, by table and number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Partition> {
        self.chunks.values().flat_map(|chunk| {
            looked_at(chunk.len());
            chunk.iter()
        })
    }

    /// Returns the rows of one table, by number.
    pub fn of_table(&self, table: TableId) -> impl Iterator<Item = &Partition> {
        self.chunks.range((table, 0)..=(table, u32::MAX)).flat_map(|(_, chunk)| {
            looked_at(chunk.len());
            chunk.iter()
        })
    }

    /// Returns the number of partitions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of partitions of a table.
    pub fn count_of(&self, table: TableId) -> u32 {
        self.counts.get(&table).copied().unwrap_or(0)
    }

    /// Returns the bytes of the keys at which the ranges of all tables begin.
    pub fn split_keys_bytes(&self) -> usize {
        self.split_keys_bytes
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the rows with a copy in any state on `node`, by table and number.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = &Partition> {
        self.by_node.get(&node).into_iter().flatten().filter_map(|id| self.get(*id))
    }

    /// Returns the number of copies in any state on `node`.
    pub fn count_on(&self, node: NodeId) -> u32 {
        self.by_node.get(&node).map_or(0, |set| u32::try_from(set.len()).unwrap_or(u32::MAX))
    }

    /// Returns the number of copies in any state of one table on `node`.
    pub fn count_in(&self, table: TableId, node: NodeId) -> u32 {
        let all = PartitionId::new(table, 0)..=PartitionId::new(table, u32::MAX);
        self.by_node.get(&node).map_or(0, |set| u32::try_from(set.range(all).count()).unwrap_or(u32::MAX))
    }

    /// Returns a number that differs after every change of a row with a copy on `node`, including added and removed
    /// copies.
    pub fn mark_of(&self, node: NodeId) -> u64 {
        self.marks.get(&node).copied().unwrap_or(0)
    }

    /// Returns the number of copies that `node` holds or is loading, without those to be deleted.
    pub fn held_on(&self, node: NodeId) -> u32 {
        self.count_on(node) - self.unloading.get(&node).copied().unwrap_or(0)
    }

    /// Returns the number of partitions that `node` leads.
    pub fn leaders_on(&self, node: NodeId) -> u32 {
        self.leaders.get(&node).copied().unwrap_or(0)
    }

    /// Returns the rows that wait for their first assignment.
    pub fn unassigned(&self) -> impl Iterator<Item = &Partition> {
        self.unassigned.iter().filter_map(|id| self.get(*id))
    }

    /// Returns those of one table, by number.
    pub fn unassigned_in(&self, table: TableId) -> impl Iterator<Item = &Partition> {
        let all = PartitionId::new(table, 0)..=PartitionId::new(table, u32::MAX);
        self.unassigned.range(all).filter_map(|id| self.get(*id))
    }

    /// Returns the number of partitions of a table that wait for their first assignment.
    pub fn unassigned_of(&self, table: TableId) -> usize {
        self.unassigned.range(PartitionId::new(table, 0)..=PartitionId::new(table, u32::MAX)).count()
    }

    /// Returns true if a table waits for the first assignment of some partition.
    pub fn awaits_assignment(&self, table: TableId) -> bool {
        self.unassigned.range(PartitionId::new(table, 0)..=PartitionId::new(table, u32::MAX)).next().is_some()
    }

    /// Returns a table's assigned rows without a leader, by number.
    pub fn leaderless_in(&self, table: TableId) -> impl Iterator<Item = &Partition> {
        let all = PartitionId::new(table, 0)..=PartitionId::new(table, u32::MAX);
        self.leaderless.range(all).filter_map(|id| self.get(*id))
    }

    /// Returns the assigned partitions without a leader of which one of these nodes holds a copy in any state. It
    /// examines no row.
    pub(crate) fn leaderless_on(&self, holder: impl Fn(NodeId) -> bool) -> BTreeSet<PartitionId> {
        self.leaderless_on.iter().filter(|(node, _)| holder(**node)).flat_map(|(_, ids)| ids).copied().collect()
    }

    /// Returns the partitions that are not Online.
    pub(crate) fn not_online(&self) -> impl Iterator<Item = PartitionId> {
        self.not_online.iter().copied()
    }

    /// Returns true if an existing partition is Online, without examining its row.
    pub(crate) fn is_online(&self, id: PartitionId) -> bool {
        !self.not_online.contains(&id)
    }

    /// Returns the rows with a copy that is not Live.
    pub fn unsettled(&self) -> impl Iterator<Item = &Partition> {
        self.unsettled.iter().filter_map(|id| self.get(*id))
    }

    /// Returns the rows that are being split.
    pub fn splitting(&self) -> impl Iterator<Item = &Partition> {
        self.splitting.iter().filter_map(|id| self.get(*id))
    }

    /// Returns the rows that absorb their right neighbours.
    pub fn merging(&self) -> impl Iterator<Item = &Partition> {
        self.merging.iter().filter_map(|id| self.get(*id))
    }

    /// Returns a table's assigned rows with fewer copies than that, in any state.
    pub fn with_copies_below(&self, table: TableId, copies: usize) -> impl Iterator<Item = &Partition> {
        self.with_copies(table, (table, 0, 0)..(table, copies, 0))
    }

    /// Returns a table's rows with more copies than that, in any state.
    pub fn with_copies_above(&self, table: TableId, copies: usize) -> impl Iterator<Item = &Partition> {
        self.with_copies(table, (table, copies.saturating_add(1), 0)..(table, usize::MAX, u32::MAX))
    }

    fn with_copies(&self, table: TableId, range: Range<(TableId, usize, u32)>) -> impl Iterator<Item = &Partition> {
        let ids = self.by_copies.range(range).map(move |(_, _, index)| PartitionId::new(table, *index));
        ids.filter_map(|id| self.get(id))
    }

    /// Returns the version of a table's newest row, zero if it has none.
    pub fn newest(&self, table: TableId) -> Version {
        self.newest.get(&table).copied().unwrap_or(Version::ZERO)
    }

    /// Returns a table's rows newer than `since`, oldest change first.
    pub fn newer_than(&self, table: TableId, since: Version) -> impl Iterator<Item = &Partition> {
        self.ids_newer_than(table, since).filter_map(|id| self.get(id))
    }

    /// Like [`newer_than`](Self::newer_than), without examining the rows.
    pub(crate) fn ids_newer_than(&self, table: TableId, since: Version) -> impl Iterator<Item = PartitionId> {
        let after = (table, Version::new(since.get().saturating_add(1)), 0);
        let last = (table, Version::new(u64::MAX), u32::MAX);
        // At the very end of the range there is no newer row, and `after > last` cannot occur.
        self.by_version.range(after..=last).map(|(table, _, index)| PartitionId::new(*table, *index))
    }

    /// Returns the rows alone, without indexes, to be serialised while the state goes on changing.
    pub(crate) fn image(&self) -> Self {
        Self { chunks: self.chunks.clone(), count: self.count, ..Self::default() }
    }

    /// Returns the rows of an image with every index.
    pub(crate) fn indexed(&self) -> Self {
        self.chunks.values().flat_map(|chunk| chunk.iter().cloned()).collect::<Vec<_>>().into()
    }

    /// Adds or replaces a row.
    pub(crate) fn insert(&mut self, row: Partition) {
        self.index(&row);
        let chunk = Arc::make_mut(self.chunks.entry(chunk_of(row.id)).or_default());
        match chunk.binary_search_by_key(&row.id.index, |row| row.id.index) {
            Ok(place) => {
                let new = row.clone();
                let old = std::mem::replace(&mut chunk[place], row);
                self.split_keys_bytes -= old.range.begin.len();
                self.unindex(&old, &new);
            }
            Err(place) => {
                *self.counts.entry(row.id.table).or_default() += 1;
                chunk.insert(place, row);
                self.count += 1;
            }
        }
    }

    /// Removes the row of one of several partitions of a table: another one of them has a newer row.
    pub(crate) fn remove(&mut self, id: PartitionId) -> Option<Partition> {
        let chunk = Arc::make_mut(self.chunks.get_mut(&chunk_of(id))?);
        let place = chunk.binary_search_by_key(&id.index, |row| row.id.index).ok()?;
        let row = chunk.remove(place);
        if chunk.is_empty() {
            self.chunks.remove(&chunk_of(id));
        }
        if let Some(count) = self.counts.get_mut(&id.table) {
            *count -= 1;
        }
        self.count -= 1;
        self.forget(&row);
        Some(row)
    }

    /// Removes a deleted row from the indexes.
    fn forget(&mut self, row: &Partition) {
        self.split_keys_bytes -= row.range.begin.len();
        let version = Version::new(row.version.get().wrapping_add(1));
        let (leader, placements, status) = (None, Vec::new(), PartitionStatus::Unassigned);
        let gone = Partition { version, leader, placements, status, split: None, merge: None, ..row.clone() };
        self.unindex(row, &gone);
        self.unassigned.remove(&row.id);
        self.not_online.remove(&row.id);
    }

    /// Removes all rows of a table, and returns them by number.
    pub(crate) fn remove_table(&mut self, table: TableId) -> Vec<Partition> {
        let chunks: Vec<(TableId, u32)> =
            self.chunks.range((table, 0)..=(table, u32::MAX)).map(|(chunk, _)| *chunk).collect();
        let mut removed = Vec::new();
        for chunk in chunks.into_iter().filter_map(|chunk| self.chunks.remove(&chunk)) {
            removed.extend(Arc::unwrap_or_clone(chunk));
        }
        removed.iter().for_each(|row| self.forget(row));
        self.newest.remove(&table);
        self.counts.remove(&table);
        self.count -= removed.len();
        removed
    }

    /// Enters a row into every index; existing entries stay.
    fn index(&mut self, row: &Partition) {
        self.split_keys_bytes += row.range.begin.len();
        for placement in &row.placements {
            self.by_node.entry(placement.node).or_default().insert(row.id);
            let mark = self.marks.entry(placement.node).or_default();
            *mark = mark.wrapping_add(mark_of(row));
        }
        if let Some(leader) = row.leader_placement() {
            *self.leaders.entry(leader.node).or_default() += 1;
        }
        for node in unloading(row) {
            *self.unloading.entry(node).or_default() += 1;
        }
        self.by_version.insert((row.id.table, row.version, row.id.index));
        let newest = self.newest.entry(row.id.table).or_default();
        *newest = row.version.max(*newest);
        if is_assigned(row) {
            self.by_copies.insert((row.id.table, row.placements.len(), row.id.index));
        } else {
            self.unassigned.insert(row.id);
        }
        if is_leaderless(row) {
            self.leaderless.insert(row.id);
            for placement in &row.placements {
                self.leaderless_on.entry(placement.node).or_default().insert(row.id);
            }
        }
        if row.status != PartitionStatus::Online {
            self.not_online.insert(row.id);
        }
        if is_unsettled(row) {
            self.unsettled.insert(row.id);
        }
        if row.split.is_some() {
            self.splitting.insert(row.id);
        }
        if row.absorbs().is_some() {
            self.merging.insert(row.id);
        }
    }

    /// Removes the index entries of the old row that do not apply to the new one.
    fn unindex(&mut self, old: &Partition, new: &Partition) {
        for placement in &old.placements {
            if let Some(mark) = self.marks.get_mut(&placement.node) {
                *mark = mark.wrapping_sub(mark_of(old));
                if *mark == 0 {
                    self.marks.remove(&placement.node);
                }
            }
        }
        for placement in old.placements.iter().filter(|placement| new.placement_on(placement.node).is_none()) {
            leave(&mut self.by_node, placement.node, old.id);
        }
        let held = |node| is_leaderless(new) && new.placement_on(node).is_some();
        for placement in old.placements.iter().filter(|placement| is_leaderless(old) && !held(placement.node)) {
            leave(&mut self.leaderless_on, placement.node, old.id);
        }
        if let Some(leader) = old.leader_placement() {
            count_down(&mut self.leaders, leader.node);
        }
        for node in unloading(old) {
            count_down(&mut self.unloading, node);
        }
        if old.version != new.version {
            self.by_version.remove(&(old.id.table, old.version, old.id.index));
        }
        let still = is_assigned(new) && old.placements.len() == new.placements.len();
        if is_assigned(old) && !still {
            self.by_copies.remove(&(old.id.table, old.placements.len(), old.id.index));
        }
        if is_assigned(new) {
            self.unassigned.remove(&new.id);
        }
        if !is_leaderless(new) {
            self.leaderless.remove(&new.id);
        }
        if new.status == PartitionStatus::Online {
            self.not_online.remove(&new.id);
        }
        if !is_unsettled(new) {
            self.unsettled.remove(&new.id);
        }
        if new.split.is_none() {
            self.splitting.remove(&new.id);
        }
        if new.absorbs().is_none() {
            self.merging.remove(&new.id);
        }
    }
}

/// Counts examined rows, so that tests see the cost of a decision on any machine.
#[cfg(test)]
fn looked_at(rows: usize) {
    LOOKED_AT.set(LOOKED_AT.get() + rows);
}

#[cfg(not(test))]
const fn looked_at(_: usize) {}

#[cfg(test)]
thread_local! {
    /// Rows that this thread has examined so far.
    pub(crate) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns a hash of a row and its version, mixed so that sums over rows distinguish sets of them.
fn mark_of(row: &Partition) -> u64 {
    mixed(mixed(mixed(row.id.table.get()) ^ u64::from(row.id.index)) ^ row.version.get())
}

fn leave(index: &mut BTreeMap<NodeId, BTreeSet<PartitionId>>, node: NodeId, id: PartitionId) {
    if let Some(set) = index.get_mut(&node) {
        set.remove(&id);
        if set.is_empty() {
            index.remove(&node);
        }
    }
}

fn count_down(counts: &mut BTreeMap<NodeId, u32>, node: NodeId) {
    if let Some(count) = counts.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&node);
        }
    }
}

fn unloading(row: &Partition) -> impl Iterator<Item = NodeId> {
    row.placements.iter().filter(|copy| copy.state == ReplicaState::Unload).map(|copy| copy.node)
}

fn chunk_of(id: PartitionId) -> (TableId, u32) {
    (id.table, id.index / CHUNK_NUMBERS)
}

fn is_assigned(row: &Partition) -> bool {
    row.status != PartitionStatus::Unassigned
}

fn is_leaderless(row: &Partition) -> bool {
    is_assigned(row) && row.leader.is_none()
}

fn is_unsettled(row: &Partition) -> bool {
    row.placements.iter().any(|placement| placement.state != ReplicaState::Live)
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
        let mut rows = serializer.serialize_seq(Some(self.count))?;
        for row in self.iter() {
            rows.serialize_element(row)?;
        }
        rows.end()
    }
}
