//! What operators have ordered of partitions and members beside where copies are: bars, partitions taken offline, renewed
//! leaderships, maintenance. Each stands with who ordered it, why and when, until it is taken back, is done, or its subject is
//! gone.
//!
//! | order | what follows |
//! |---|---|
//! | bump | the leadership ends; once released, or its lease is over, the same member leads in the next epoch |
//! | bar | the member gets no copy of the partition and leads it no more; a copy that it has is replaced elsewhere first |
//! | offline | the leadership ends, and nobody is given another one; the data stays where it is |
//! | maintenance | the member's leaderships go to others and nothing new comes to it; its copies stay, and are not replaced while it is down; it ends by itself |
//!
//! The leadership of data that is to end is withdrawn at once, for the leader has nothing to finish. The owner of a lease is asked
//! to release it first, as for a hand-over: were it withdrawn, the service would be told that it is lost, and all would wait for
//! the end of the lease.
//!
//! Other rooms ask three questions: [`ClusterState::bars`], [`ClusterState::is_offline`] and [`ClusterState::is_bumped`].

mod list;
mod order;

pub use order::{Bar, Order};

use crate::command::Actor;
use crate::state::ClusterState;
use archon_types::{Epoch, Millis, NodeGoal, NodeId, PartitionId, TableId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most bars and partitions offline at once.
pub const CONTROLS_MAX: usize = 65_536;

/// Why something stands as it was ordered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// In the operator's words; may be empty.
    pub why: String,
    /// Who ordered it.
    pub who: Actor,
    /// When, on the proposer's wall clock.
    pub at: Millis,
}

/// A member is being worked on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Maintenance {
    /// When it ends by itself, on the wall clock of the coordinator that took the order, as `note.at`. Only the time between the two counts.
    pub until: Millis,
    /// What was wanted of the member before, and is again afterwards.
    pub before: NodeGoal,
    /// Why.
    pub note: Note,
    /// Time left when it was recorded last, in milliseconds; `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

impl Maintenance {
    /// Time left when it was recorded last, in milliseconds. The leading coordinator counts on from there.
    pub fn left_ms(&self) -> u64 {
        self.left_ms.unwrap_or_else(|| self.until.since(self.note.at))
    }
}

/// All orders that stand.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Controls {
    #[serde(with = "list")]
    bars: BTreeMap<(NodeId, Bar), Note>,
    #[serde(with = "list")]
    offline: BTreeMap<PartitionId, Note>,
    #[serde(with = "list")]
    bumped: BTreeMap<PartitionId, Epoch>,
    maintenance: BTreeMap<NodeId, Maintenance>,
}

impl Controls {
    /// Every bar with its member, by member.
    pub fn bars(&self) -> impl Iterator<Item = (NodeId, Bar, &Note)> {
        self.bars.iter().map(|((member, bar), note)| (*member, *bar, note))
    }

    /// The bars that keep this partition from members.
    pub fn bars_of(&self, partition: PartitionId) -> impl Iterator<Item = (NodeId, Bar, &Note)> {
        self.bars().filter(move |(_, bar, _)| bar.covers(partition))
    }

    /// Every partition that was taken offline.
    pub fn offline(&self) -> impl Iterator<Item = (PartitionId, &Note)> {
        self.offline.iter().map(|(partition, note)| (*partition, note))
    }

    /// Why the partition was taken offline, if it was.
    pub fn offline_of(&self, partition: PartitionId) -> Option<&Note> {
        self.offline.get(&partition)
    }

    /// Every member in maintenance.
    pub fn maintenance(&self) -> impl Iterator<Item = (NodeId, &Maintenance)> {
        self.maintenance.iter().map(|(member, maintenance)| (*member, maintenance))
    }

    /// The maintenance of this member, if it is in one.
    pub fn maintenance_of(&self, member: NodeId) -> Option<&Maintenance> {
        self.maintenance.get(&member)
    }

    /// The orders that would take back everything that stands.
    pub fn reversals(&self) -> impl Iterator<Item = Order> {
        let bars = self.bars().map(|(member, bar, _)| Order::Unbar { bar, member });
        let offline = self.offline().map(|(partition, _)| Order::Online { partition });
        bars.chain(offline).chain(self.maintenance().map(|(member, _)| Order::Resume { member }))
    }

    /// Whether there is any bar against this member.
    pub(crate) fn bars_member(&self, member: NodeId) -> bool {
        self.bars.range((member, Bar::FIRST)..).next().is_some_and(|((of, _), _)| *of == member)
    }

    /// The members against which there is a bar.
    pub(crate) fn barred(&self) -> BTreeSet<NodeId> {
        self.bars.keys().map(|(member, _)| *member).collect()
    }

    /// Whether another bar or partition offline would be too many.
    pub(crate) fn is_full(&self) -> bool {
        self.bars.len() + self.offline.len() >= CONTROLS_MAX
    }

    pub(crate) fn has_bar(&self, member: NodeId, bar: Bar) -> bool {
        self.bars.contains_key(&(member, bar))
    }

    pub(crate) fn insert_bar(&mut self, member: NodeId, bar: Bar, note: Note) {
        self.bars.insert((member, bar), note);
    }

    pub(crate) fn remove_bar(&mut self, member: NodeId, bar: Bar) {
        self.bars.remove(&(member, bar));
    }

    /// What keeps members from one partition keeps them from another one from now on. Returns whether there is anything.
    pub(crate) fn inherit_bars(&mut self, from: PartitionId, to: PartitionId) -> bool {
        let bars = self.bars.iter().filter(|((_, bar), _)| *bar == Bar::Partition(from));
        let bars: Vec<(NodeId, Note)> = bars.map(|((member, _), note)| (*member, note.clone())).collect();
        let any = !bars.is_empty();
        self.bars.extend(bars.into_iter().map(|(member, note)| ((member, Bar::Partition(to)), note)));
        any
    }

    pub(crate) fn insert_offline(&mut self, partition: PartitionId, note: Note) {
        self.offline.insert(partition, note);
    }

    pub(crate) fn remove_offline(&mut self, partition: PartitionId) {
        self.offline.remove(&partition);
    }

    pub(crate) fn insert_bumped(&mut self, partition: PartitionId, epoch: Epoch) {
        self.bumped.insert(partition, epoch);
    }

    /// The partition is in this epoch now: a renewal of an earlier one is done.
    pub(crate) fn reached(&mut self, partition: PartitionId, epoch: Epoch) {
        if self.bumped.get(&partition).is_some_and(|bumped| *bumped < epoch) {
            self.bumped.remove(&partition);
        }
    }

    pub(crate) fn insert_maintenance(&mut self, member: NodeId, maintenance: Maintenance) {
        self.maintenance.insert(member, maintenance);
    }

    /// Records how much time is left of the maintenance that was ordered until then. Returns whether there is one.
    pub(crate) fn record_left(&mut self, member: NodeId, until: Millis, left_ms: u64) -> bool {
        let Some(maintenance) = self.maintenance.get_mut(&member).filter(|order| order.until == until) else {
            return false;
        };
        maintenance.left_ms = Some(left_ms.min(maintenance.left_ms()));
        true
    }

    pub(crate) fn remove_maintenance(&mut self, member: NodeId) -> Option<Maintenance> {
        self.maintenance.remove(&member)
    }

    /// The table is gone.
    pub(crate) fn forget_table(&mut self, table: TableId) {
        self.bars.retain(|(_, bar), _| bar.table() != table);
        self.offline.retain(|partition, _| partition.table != table);
        self.bumped.retain(|partition, _| partition.table != table);
    }

    /// The partition is gone.
    pub(crate) fn forget_partition(&mut self, partition: PartitionId) {
        self.bars.retain(|(_, bar), _| *bar != Bar::Partition(partition));
        self.offline.remove(&partition);
        self.bumped.remove(&partition);
    }

    /// The member is gone.
    pub(crate) fn forget_member(&mut self, member: NodeId) {
        self.bars.retain(|(of, _), _| *of != member);
        self.maintenance.remove(&member);
    }
}

impl ClusterState {
    /// Returns true if an operator barred this member from the partition, or it is a participant that was not granted the table.
    pub fn bars(&self, partition: PartitionId, member: NodeId) -> bool {
        self.controls.has_bar(member, Bar::Partition(partition)) || self.bars_all(partition.table, member)
    }

    /// Returns true if an operator barred this member from all of the table, or it is a participant that was not granted it.
    pub(crate) fn bars_all(&self, table: TableId, member: NodeId) -> bool {
        self.controls.has_bar(member, Bar::Table(table)) || self.lacks_grant(member, table)
    }

    /// Returns true if there may be partitions from which the member is barred.
    pub(crate) fn bars_any(&self, member: NodeId) -> bool {
        self.controls.bars_member(member) || self.lacks_any_grant(member)
    }

    /// Whether an operator has taken the partition offline.
    pub fn is_offline(&self, partition: PartitionId) -> bool {
        self.controls.offline.contains_key(&partition)
    }

    /// The partitions that are led as yet, and should not be, or not in this epoch.
    pub(crate) fn ending(&self) -> impl Iterator<Item = PartitionId> {
        let led = |partition: &PartitionId| self.partitions.get(*partition).is_some_and(|row| row.leader.is_some());
        let offline = self.controls.offline.keys().copied();
        offline.chain(self.controls.bumped.keys().copied().filter(|partition| self.is_bumped(*partition))).filter(led)
    }

    /// Whether the present leadership of the partition is to be renewed.
    pub fn is_bumped(&self, partition: PartitionId) -> bool {
        let row = self.partitions.get(partition);
        row.is_some_and(|row| self.controls.bumped.get(&partition) == Some(&row.epoch))
    }
}
