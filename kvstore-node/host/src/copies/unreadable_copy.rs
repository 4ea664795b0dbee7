//! Copies that are kept and not served, and the pauses between the leaderships that they give up.

use archon_replica::Position;
use archon_types::{
    Epoch, Incarnation, Millis, NodeId, Partition, PartitionId, PartitionStatus, PlacementId, ReplicaState, Version,
};
use std::collections::{BTreeMap, BTreeSet};

/// Pause before the node gives up the next leadership of such a copy, in milliseconds: if no other copy can lead, the
/// coordinators name this one again at once. It doubles with each leadership, as several copies of a partition may be
/// unread at the same time, until another copy serves, or its node fails or registers.
pub(crate) const RELEASE_PAUSE_MS: u64 = 5_000;
/// Longest pause, in milliseconds.
pub(crate) const RELEASE_PAUSE_MS_MAX: u64 = 5 * 60_000;

/// A node of another copy that is alive, with its incarnation.
pub(crate) type AliveHeir = (NodeId, Incarnation);

/// A copy that is kept and not served.
#[derive(Debug)]
pub(crate) struct UnreadableCopy {
    pub(crate) partition: PartitionId,
    /// The highest epoch that it accepts.
    pub(crate) epoch: Epoch,
    /// The end of its log on disk.
    pub(crate) last: Position,
    /// The engine refuses to read its rows. It is served again once the engine is opened again.
    pub(crate) is_unread: bool,
    /// Version of its newest known row.
    pub(crate) version: Version,
    /// The epoch that its newest known row names it leader for, if it has not given that up.
    pub(crate) named: Option<Epoch>,
    /// Nodes of the other Live copies, by its newest known row.
    pub(crate) heirs: Vec<NodeId>,
    /// The last leadership given up. From then on the coordinators know that the partition is not served.
    pub(crate) released: Option<Release>,
}

/// A leadership that was given up.
#[derive(Debug)]
pub(crate) struct Release {
    at: Millis,
    /// Pause before the next one while the same heirs are alive.
    pause_ms: u64,
    /// Heirs that were alive.
    alive: Vec<AliveHeir>,
}

impl UnreadableCopy {
    pub(crate) const fn new(partition: PartitionId, epoch: Epoch, last: Position) -> Self {
        Self {
            partition,
            epoch,
            last,
            is_unread: false,
            version: Version::ZERO,
            named: None,
            heirs: Vec::new(),
            released: None,
        }
    }

    /// Applies a row, unless a newer one is known: notes the leadership that it names the copy for, and the heirs.
    pub(crate) fn apply_row(&mut self, row: &Partition, own: PlacementId) {
        if row.version < self.version {
            return;
        }
        let others = row.placements.iter().filter(|other| other.id != own && other.state == ReplicaState::Live);
        self.heirs = others.map(|other| other.node).collect();
        self.version = row.version;
        self.named = (row.leader == Some(own)).then_some(row.epoch);
        // An heir that serves ends the pauses, however often the leadership is moved here again.
        let heir_serves = row.leader.is_some_and(|leader| leader != own) && row.status == PartitionStatus::Online;
        if let Some(last) = self.released.as_mut().filter(|_| heir_serves) {
            last.pause_ms = RELEASE_PAUSE_MS;
        }
    }

    /// Returns whether giving up the next leadership helps, and is due.
    pub(crate) fn may_release(&self, now: Millis, alive: &[AliveHeir]) -> bool {
        let Some(last) = &self.released else { return true };
        let pause_ms = if last.alive == alive { last.pause_ms } else { RELEASE_PAUSE_MS };
        // A copy with unread rows is released again only to an heir: alone, it is served again after a while.
        (!self.is_unread || !alive.is_empty()) && now.since(last.at) >= pause_ms
    }

    /// Records that the leadership it was named for is given up.
    pub(crate) fn record_release(&mut self, now: Millis, alive: Vec<AliveHeir>) {
        let before = self.released.as_ref().filter(|last| last.alive == alive);
        let pause_ms = before.map_or(RELEASE_PAUSE_MS, |last| (last.pause_ms * 2).min(RELEASE_PAUSE_MS_MAX));
        self.named = None;
        self.released = Some(Release { at: now, pause_ms, alive });
    }
}

/// Copies of a node that are kept and not served.
#[derive(Debug)]
pub(crate) struct UnreadableCopies {
    copies: BTreeMap<PlacementId, UnreadableCopy>,
    by_partition: BTreeSet<(PartitionId, PlacementId)>,
}

impl UnreadableCopies {
    pub(crate) const fn new() -> Self {
        Self { copies: BTreeMap::new(), by_partition: BTreeSet::new() }
    }

    pub(crate) fn insert(&mut self, placement: PlacementId, copy: UnreadableCopy) {
        self.by_partition.insert((copy.partition, placement));
        self.copies.insert(placement, copy);
    }

    pub(crate) fn remove(&mut self, placement: PlacementId) {
        if let Some(copy) = self.copies.remove(&placement) {
            self.by_partition.remove(&(copy.partition, placement));
        }
    }

    pub(crate) fn get(&self, placement: PlacementId) -> Option<&UnreadableCopy> {
        self.copies.get(&placement)
    }

    pub(crate) fn get_mut(&mut self, placement: PlacementId) -> Option<&mut UnreadableCopy> {
        self.copies.get_mut(&placement)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PlacementId, &UnreadableCopy)> {
        self.copies.iter().map(|(placement, copy)| (*placement, copy))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PlacementId, &mut UnreadableCopy)> {
        self.copies.iter_mut().map(|(placement, copy)| (*placement, copy))
    }

    /// Returns the placements of a partition's copies.
    pub(crate) fn placements_of(&self, partition: PartitionId) -> impl Iterator<Item = PlacementId> {
        let all = (partition, PlacementId::new(0))..=(partition, PlacementId::new(u64::MAX));
        self.by_partition.range(all).map(|(_, placement)| *placement)
    }
}
