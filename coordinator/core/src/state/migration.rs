//! Persisted record of one placement's move. Its phase is derived from the partition's row by
//! `placement::migrate::phase`, so record and row cannot disagree.

use crate::placement::tally::Tally;
pub use archon_types::MoveKind;
use archon_types::{Millis, NodeId, PartitionId, PlacementId, TableId};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A migration's number, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MigrationId(u64);

impl MigrationId {
    /// Wraps a raw number from the wire or the disk.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Returns the raw number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MigrationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Recorded stage of a migration; the finer phase is derived.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// Nothing done yet.
    Queued,
    /// The target's placement was added to the row.
    Running {
        /// The copy being made.
        target: PlacementId,
    },
    /// The source's copy is gone, or will be when its failed node returns.
    Done {
        /// The copy that was made.
        target: PlacementId,
    },
    /// Cancelled by the operator; the source serves as before.
    Cancelled,
    /// Ended because other changes of the cluster made it pointless, without a failure.
    Superseded {
        /// The change, for people.
        why: String,
    },
    /// Undone because it could not continue.
    Failed {
        /// Reason, for people.
        why: String,
    },
}

impl Stage {
    /// Returns true if this stage is final.
    pub const fn is_over(&self) -> bool {
        match self {
            Self::Queued | Self::Running { .. } => false,
            Self::Done { .. } | Self::Cancelled | Self::Superseded { .. } | Self::Failed { .. } => true,
        }
    }

    /// Returns the copy that is being made or was made, if there is one.
    pub const fn target(&self) -> Option<PlacementId> {
        match self {
            Self::Running { target } | Self::Done { target } => Some(*target),
            Self::Queued | Self::Cancelled | Self::Superseded { .. } | Self::Failed { .. } => None,
        }
    }
}

/// One placement's move from a node to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Migration {
    /// Its number.
    pub id: MigrationId,
    /// The log index of the plan it belongs to.
    pub plan: u64,
    /// Kind of move.
    pub kind: MoveKind,
    /// The partition.
    pub partition: PartitionId,
    /// The copy to remove, or the leading copy.
    pub source: PlacementId,
    /// Its node.
    pub from: NodeId,
    /// The node that gets the copy or the leadership.
    pub to: NodeId,
    /// Reason of the plan, for people.
    pub reason: String,
    /// Estimate of the bytes to copy, made with the plan.
    pub bytes: u64,
    /// Its stage.
    pub stage: Stage,
    /// True if the operator cancelled it; obeyed until leadership has moved.
    pub cancel: bool,
    /// Time of the request, on the proposer's wall clock.
    pub asked_at: Millis,
    /// Time of the last change of the record, on the proposer's wall clock.
    pub changed_at: Millis,
}

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
        let from = self.tally.first.max(MigrationId(after.0.saturating_add(1)));
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
