//! Records of moves with their indexes.

use crate::state::migration::{Migration, MigrationId, Stage};
use crate::state::tally::Tally;
use archon_types::{MoveKind, NodeId, PartitionId, TableId};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// The migrations of the running plan and a bounded number of earlier ones. Serialised as a plain list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "Vec<Migration>")]
pub struct Migrations {
    rows: BTreeMap<MigrationId, Migration>,
    active: BTreeSet<MigrationId>,
    running: BTreeMap<PartitionId, MigrationId>,
    /// Running migrations by the node from which they move something.
    running_from: BTreeSet<(NodeId, MigrationId)>,
    /// Unfinished migrations, by partition.
    by_partition: BTreeSet<(PartitionId, MigrationId)>,
    /// Queued copies, by source and by target node.
    queued_from: BTreeMap<NodeId, BTreeSet<MigrationId>>,
    queued_to: BTreeMap<NodeId, BTreeSet<MigrationId>>,
    /// Queued moves of leaderships.
    queued_leads: BTreeSet<MigrationId>,
    /// Counts of the newest plan's moves.
    tally: Tally,
}

impl Migrations {
    /// Returns a migration's record.
    pub fn get(&self, id: MigrationId) -> Option<&Migration> {
        self.rows.get(&id)
    }

    /// Returns every record, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Migration> {
        self.rows.values()
    }

    /// Returns the moves of the newest plan with a number above `after`, oldest first.
    pub fn of_newest_plan(&self, after: MigrationId) -> impl Iterator<Item = &Migration> {
        let from = self.tally.first.max(MigrationId::new(after.get().saturating_add(1)));
        self.rows.range(from..).map(|(_, migration)| migration)
    }

    /// Returns the counts of the newest plan's moves.
    pub(crate) const fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the unfinished ones, oldest first.
    pub fn active(&self) -> impl Iterator<Item = &Migration> {
        self.active.iter().filter_map(|id| self.rows.get(id))
    }

    /// Returns the unfinished ones of a table's partitions, by partition.
    pub fn active_of(&self, table: TableId) -> impl Iterator<Item = &Migration> {
        let first = (PartitionId::new(table, 0), MigrationId::new(0));
        let last = (PartitionId::new(table, u32::MAX), MigrationId::new(u64::MAX));
        self.by_partition.range(first..=last).filter_map(|(_, id)| self.rows.get(id))
    }

    /// Returns the running ones, by partition.
    pub fn all_running(&self) -> impl Iterator<Item = &Migration> {
        self.running.values().filter_map(|id| self.rows.get(id))
    }

    /// Returns the queued copies that could begin as far as their two nodes are concerned: `open` returns true if a
    /// node may give or take another copy. Oldest first.
    pub(crate) fn could_begin(&self, open: impl Fn(NodeId) -> bool) -> BTreeSet<MigrationId> {
        let waiting = |index: &BTreeMap<NodeId, BTreeSet<MigrationId>>| -> usize {
            index.iter().filter(|(node, _)| open(**node)).map(|(_, ids)| ids.len()).sum()
        };
        // Either side works; the shorter index has fewer moves that wait for the other side.
        let by =
            if waiting(&self.queued_from) < waiting(&self.queued_to) { &self.queued_from } else { &self.queued_to };
        by.iter().filter(|(node, _)| open(**node)).flat_map(|(_, ids)| ids).copied().collect()
    }

    /// Returns the queued moves of leaderships, oldest first.
    pub(crate) fn queued_leads(&self) -> impl Iterator<Item = MigrationId> {
        self.queued_leads.iter().copied()
    }

    /// Returns true if a running one moves something away from this node.
    pub fn any_running_from(&self, node: NodeId) -> bool {
        self.running_from.range((node, MigrationId::new(0))..).next().is_some_and(|(from, _)| *from == node)
    }

    /// Returns the number of unfinished ones.
    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Returns the running one of this partition; there is at most one.
    pub fn running(&self, partition: PartitionId) -> Option<&Migration> {
        self.running.get(&partition).and_then(|id| self.rows.get(id))
    }

    /// Returns the oldest unfinished one of this partition: moves of a partition are made in the order of their
    /// numbers.
    pub fn first_active(&self, partition: PartitionId) -> Option<MigrationId> {
        let from = (partition, MigrationId::new(0));
        self.by_partition.range(from..).next().filter(|(of, _)| *of == partition).map(|(_, id)| *id)
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn insert(&mut self, migration: Migration) {
        let id = migration.id;
        match (migration.kind, migration.stage == Stage::Queued) {
            (MoveKind::Leadership, true) => {
                self.queued_leads.insert(id);
            }
            (MoveKind::Leadership, false) => {
                self.queued_leads.remove(&id);
            }
            (MoveKind::Copy, true) => {
                self.queued_from.entry(migration.from).or_default().insert(id);
                self.queued_to.entry(migration.to).or_default().insert(id);
            }
            (MoveKind::Copy, false) => {
                leave(&mut self.queued_from, migration.from, id);
                leave(&mut self.queued_to, migration.to, id);
            }
        }
        if !migration.stage.is_over() {
            self.active.insert(migration.id);
            self.by_partition.insert((migration.partition, migration.id));
        } else {
            self.active.remove(&migration.id);
            self.by_partition.remove(&(migration.partition, migration.id));
        }
        match &migration.stage {
            Stage::Running { .. } => {
                self.running.insert(migration.partition, migration.id);
                self.running_from.insert((migration.from, id));
            }
            _ => {
                self.running_from.remove(&(migration.from, id));
                if self.running.get(&migration.partition) == Some(&migration.id) {
                    self.running.remove(&migration.partition);
                }
            }
        }
        if migration.plan > self.tally.plan {
            self.tally = Tally::of_plan(migration.plan, id);
        }
        if let Some(before) = self.rows.get(&id).filter(|before| before.plan == self.tally.plan) {
            self.tally.leave(before);
        }
        if migration.plan == self.tally.plan {
            self.tally.enter(&migration);
        }
        self.rows.insert(migration.id, migration);
    }

    /// Forgets the oldest finished records, beyond `kept`.
    pub(crate) fn trim(&mut self, kept: usize) {
        let excess = self.rows.len().saturating_sub(kept);
        let old: Vec<MigrationId> =
            self.rows.values().filter(|row| row.stage.is_over()).take(excess).map(|row| row.id).collect();
        for id in old {
            let Some(row) = self.rows.remove(&id).filter(|row| row.plan == self.tally.plan) else { continue };
            self.tally.leave(&row);
            if self.tally.first == id {
                // The numbers of a plan's moves are consecutive, and no newer plan has any.
                self.tally.first = self.rows.range(id..).next().map_or(id, |(next, _)| *next);
            }
        }
    }
}

fn leave(index: &mut BTreeMap<NodeId, BTreeSet<MigrationId>>, node: NodeId, id: MigrationId) {
    if let Some(ids) = index.get_mut(&node) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(&node);
        }
    }
}

impl From<Vec<Migration>> for Migrations {
    fn from(rows: Vec<Migration>) -> Self {
        let mut migrations = Self::default();
        for migration in rows {
            migrations.insert(migration);
        }
        migrations
    }
}

impl Serialize for Migrations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.values())
    }
}
