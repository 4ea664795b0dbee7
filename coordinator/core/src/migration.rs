//! The persisted record of one placement's move. How far it is (its phase) is derived from the partition's row by
//! [`crate::migrate::phase`], so record and row cannot disagree.

use crate::tally::Tally;
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
    /// Wraps a raw number, as it came from the wire or the disk.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The raw number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MigrationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is recorded of a migration's course; the finer phase is derived.
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
    /// Undone at the operator's wish; the source serves as before.
    Cancelled,
    /// Given up because the cluster changed meanwhile and it has lost its point; nothing went wrong.
    Superseded {
        /// What changed, for people.
        why: String,
    },
    /// Undone because it could not go on.
    Failed {
        /// Why, for people.
        why: String,
    },
}

impl Stage {
    /// Whether nothing more will happen.
    pub const fn is_over(&self) -> bool {
        match self {
            Self::Queued | Self::Running { .. } => false,
            Self::Done { .. } | Self::Cancelled | Self::Superseded { .. } | Self::Failed { .. } => true,
        }
    }

    /// The copy being made or made, if there is one.
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
    /// What it moves.
    pub kind: MoveKind,
    /// The partition.
    pub partition: PartitionId,
    /// The copy that is to go, or that leads.
    pub source: PlacementId,
    /// Where that stands.
    pub from: NodeId,
    /// Where a copy is to come, or to lead.
    pub to: NodeId,
    /// Why the plan moves it, for people.
    pub reason: String,
    /// Bytes to copy as estimated when it was planned.
    pub bytes: u64,
    /// How far it is.
    pub stage: Stage,
    /// The operator wants it undone; obeyed until leadership has moved.
    pub cancel: bool,
    /// When it was asked for, on the proposer's wall clock.
    pub asked_at: Millis,
    /// When its record last changed, on the proposer's wall clock.
    pub changed_at: Millis,
}

/// The migrations of the running plan and a bounded number of earlier ones. Serialised as a plain list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(from = "Vec<Migration>")]
pub struct Migrations {
    rows: BTreeMap<MigrationId, Migration>,
    active: BTreeSet<MigrationId>,
    running: BTreeMap<PartitionId, MigrationId>,
    /// Those of them that move something away from each node.
    running_from: BTreeSet<(NodeId, MigrationId)>,
    /// Those that are not over, by partition.
    by_partition: BTreeSet<(PartitionId, MigrationId)>,
    /// Copies that have not begun, by where they come from and by where they go.
    queued_from: BTreeMap<NodeId, BTreeSet<MigrationId>>,
    queued_to: BTreeMap<NodeId, BTreeSet<MigrationId>>,
    /// Leaderships that have not begun.
    queued_leads: BTreeSet<MigrationId>,
    /// The moves of the newest plan, counted.
    tally: Tally,
}

impl Migrations {
    /// A migration's record.
    pub fn get(&self, id: MigrationId) -> Option<&Migration> {
        self.rows.get(&id)
    }

    /// Every record, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Migration> {
        self.rows.values()
    }

    /// The moves of the newest plan with a number above `after`, oldest first.
    pub fn of_newest_plan(&self, after: MigrationId) -> impl Iterator<Item = &Migration> {
        let from = self.tally.first.max(MigrationId(after.0.saturating_add(1)));
        self.rows.range(from..).map(|(_, migration)| migration)
    }

    /// The moves of the newest plan, counted.
    pub(crate) const fn tally(&self) -> Tally {
        self.tally
    }

    /// Those that are not over, oldest first.
    pub fn active(&self) -> impl Iterator<Item = &Migration> {
        self.active.iter().filter_map(|id| self.rows.get(id))
    }

    /// Those of a table's partitions that are not over, by partition.
    pub fn active_of(&self, table: TableId) -> impl Iterator<Item = &Migration> {
        let first = (PartitionId::new(table, 0), MigrationId::new(0));
        let last = (PartitionId::new(table, u32::MAX), MigrationId::new(u64::MAX));
        self.by_partition.range(first..=last).filter_map(|(_, id)| self.rows.get(id))
    }

    /// Those that have begun and are not over, by partition.
    pub fn all_running(&self) -> impl Iterator<Item = &Migration> {
        self.running.values().filter_map(|id| self.rows.get(id))
    }

    /// The copies that have not begun, and could as far as their two nodes go: `open` says of a node whether it may give
    /// or take another copy. Oldest first.
    pub(crate) fn could_begin(&self, open: impl Fn(NodeId) -> bool) -> BTreeSet<MigrationId> {
        let waiting = |index: &BTreeMap<NodeId, BTreeSet<MigrationId>>| -> usize {
            index.iter().filter(|(node, _)| open(**node)).map(|(_, ids)| ids.len()).sum()
        };
        // Either side will do; the shorter one has fewer that wait for the other.
        let by =
            if waiting(&self.queued_from) < waiting(&self.queued_to) { &self.queued_from } else { &self.queued_to };
        by.iter().filter(|(node, _)| open(**node)).flat_map(|(_, ids)| ids).copied().collect()
    }

    /// The leaderships that have not begun, oldest first.
    pub(crate) fn queued_leads(&self) -> impl Iterator<Item = MigrationId> {
        self.queued_leads.iter().copied()
    }

    /// Whether one that has begun moves something away from this node.
    pub fn any_running_from(&self, node: NodeId) -> bool {
        self.running_from.range((node, MigrationId::new(0))..).next().is_some_and(|(from, _)| *from == node)
    }

    /// How many are not over.
    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// The one that has begun to move a copy of this partition; never more than one.
    pub fn running(&self, partition: PartitionId) -> Option<&Migration> {
        self.running.get(&partition).and_then(|id| self.rows.get(id))
    }

    /// The oldest one of this partition that is not over: moves of a partition are made in the order of their numbers.
    pub fn first_active(&self, partition: PartitionId) -> Option<MigrationId> {
        let from = (partition, MigrationId::new(0));
        self.by_partition.range(from..).next().filter(|(of, _)| *of == partition).map(|(_, id)| *id)
    }

    /// How many records are kept.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
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

    /// Forgets the oldest records that are over, beyond `kept`.
    pub(crate) fn trim(&mut self, kept: usize) {
        let excess = self.rows.len().saturating_sub(kept);
        let old: Vec<MigrationId> =
            self.rows.values().filter(|row| row.stage.is_over()).take(excess).map(|row| row.id).collect();
        for id in old {
            let Some(row) = self.rows.remove(&id).filter(|row| row.plan == self.tally.plan) else { continue };
            self.tally.leave(&row);
            if self.tally.first == id {
                // The numbers of a plan's moves follow one another, and no newer plan has any.
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
