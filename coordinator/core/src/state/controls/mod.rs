//! Orders of operators about partitions and members, apart from the placement of copies: bars, partitions taken
//! offline, renewed leaderships, maintenance. Each is stored with its originator, reason and time until it is revoked,
//! done, or its subject is gone.
//!
//! | order | what follows |
//! |---|---|
//! | bump | the leadership ends; once released, or after its lease, the same member leads in the next epoch |
//! | bar | the member gets no copy of the partition and does not lead it; an existing copy is replaced elsewhere first |
//! | offline | the leadership ends, and no other one is granted; the data stays where it is |
//! | maintenance | the member's leaderships go to others and it gets nothing new; its copies stay, and are not replaced while it is down; it ends by itself |
//!
//! A leadership of data that must end is withdrawn at once, since the leader has nothing to finish. The owner of a
//! lease is asked to release it first, as for a hand-over: a withdrawal would report the lease to the service as lost,
//! and everyone would wait for the end of the lease.
//!
//! Other rooms use three queries: [`ClusterState::bars`], [`ClusterState::is_offline`] and [`ClusterState::is_bumped`].

mod list;
mod order;
pub(crate) mod queries;

pub use order::{Bar, Order};

use crate::state::actor::Actor;
use archon_types::{Epoch, Millis, NodeGoal, NodeId, PartitionId, TableId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of bars and partitions offline together.
pub(crate) const CONTROLS_MAX: usize = 65_536;

/// Reason, originator and time of an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// The operator's reason; may be empty.
    pub why: String,
    /// Originator.
    pub who: Actor,
    /// Time, on the proposer's wall clock.
    pub at: Millis,
}

/// Maintenance of a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Maintenance {
    /// Its automatic end, on the wall clock of the coordinator that took the order, like `note.at`. Only the time
    /// between the two matters.
    pub until: Millis,
    /// The member's goal before, restored afterwards.
    pub before: NodeGoal,
    /// Reason, originator and time.
    pub note: Note,
    /// Remaining time at the last record, in milliseconds; `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

impl Maintenance {
    /// Returns the remaining time at the last record, in milliseconds. The leading coordinator counts on from there.
    pub fn left_ms(&self) -> u64 {
        self.left_ms.unwrap_or_else(|| self.until.since(self.note.at))
    }
}

/// All standing orders.
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
    /// Returns every bar with its member, by member.
    pub fn bars(&self) -> impl Iterator<Item = (NodeId, Bar, &Note)> {
        self.bars.iter().map(|((member, bar), note)| (*member, *bar, note))
    }

    /// Returns the bars that keep members from this partition.
    pub fn bars_of(&self, partition: PartitionId) -> impl Iterator<Item = (NodeId, Bar, &Note)> {
        self.bars().filter(move |(_, bar, _)| bar.covers(partition))
    }

    /// Returns every partition that was taken offline.
    pub fn offline(&self) -> impl Iterator<Item = (PartitionId, &Note)> {
        self.offline.iter().map(|(partition, note)| (*partition, note))
    }

    /// Returns the note of the order that took the partition offline, if any.
    pub fn offline_of(&self, partition: PartitionId) -> Option<&Note> {
        self.offline.get(&partition)
    }

    /// Returns every member in maintenance.
    pub fn maintenance(&self) -> impl Iterator<Item = (NodeId, &Maintenance)> {
        self.maintenance.iter().map(|(member, maintenance)| (*member, maintenance))
    }

    /// Returns the maintenance of this member, if it is in one.
    pub fn maintenance_of(&self, member: NodeId) -> Option<&Maintenance> {
        self.maintenance.get(&member)
    }

    /// Returns the orders that would revoke all standing orders.
    pub fn reversals(&self) -> impl Iterator<Item = Order> {
        let bars = self.bars().map(|(member, bar, _)| Order::Unbar { bar, member });
        let offline = self.offline().map(|(partition, _)| Order::Online { partition });
        bars.chain(offline).chain(self.maintenance().map(|(member, _)| Order::Resume { member }))
    }

    /// Returns true if any bar names this member.
    pub(crate) fn bars_member(&self, member: NodeId) -> bool {
        self.bars.range((member, Bar::FIRST)..).next().is_some_and(|((of, _), _)| *of == member)
    }

    /// Returns the members with a bar.
    pub(crate) fn barred(&self) -> BTreeSet<NodeId> {
        self.bars.keys().map(|(member, _)| *member).collect()
    }

    /// Returns true if no other bar or offline partition fits.
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

    /// Copies the bars of one partition to another one. Returns true if there are any.
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

    /// Removes the renewal of an earlier epoch once the partition is in this one.
    pub(crate) fn reached(&mut self, partition: PartitionId, epoch: Epoch) {
        if self.bumped.get(&partition).is_some_and(|bumped| *bumped < epoch) {
            self.bumped.remove(&partition);
        }
    }

    pub(crate) fn insert_maintenance(&mut self, member: NodeId, maintenance: Maintenance) {
        self.maintenance.insert(member, maintenance);
    }

    /// Records the remaining time of the maintenance with this end. Returns true if there is one.
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

    /// Forgets the orders about a removed table.
    pub(crate) fn forget_table(&mut self, table: TableId) {
        self.bars.retain(|(_, bar), _| bar.table() != table);
        self.offline.retain(|partition, _| partition.table != table);
        self.bumped.retain(|partition, _| partition.table != table);
    }

    /// Forgets the orders about a removed partition.
    pub(crate) fn forget_partition(&mut self, partition: PartitionId) {
        self.bars.retain(|(_, bar), _| *bar != Bar::Partition(partition));
        self.offline.remove(&partition);
        self.bumped.remove(&partition);
    }

    /// Forgets the orders about a removed member.
    pub(crate) fn forget_member(&mut self, member: NodeId) {
        self.bars.retain(|(of, _), _| *of != member);
        self.maintenance.remove(&member);
    }
}
