//! How much of a copy's log is kept: what the engine does not hold yet, and what other copies still need.
//!
//! A loader that pulls a copy needs the log from where the copy began (its leader *pins* that), a follower that was away for
//! a moment should not have to be copied whole when it comes back. Neither is waited for without bound: the log is small
//! beside the data.

use archon_replica::{Position, Replica};
use archon_types::{Epoch, Partition, PlacementId, ReplicaState, Seq};
use std::collections::{BTreeMap, VecDeque};

/// How much log is kept for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetentionLimits {
    /// Bytes of log that one copy being pulled may keep from being forgotten; beyond, it begins anew.
    pub pinned_bytes_max: u64,
    /// Bytes of log that are kept for a copy that is away.
    pub lagging_bytes_max: u64,
}

impl RetentionLimits {
    /// Bytes of log that one copy being pulled may keep.
    const PINNED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
    /// Bytes of log that a node keeps for copies that are away, all partitions together: some minutes of small writes.
    const LAGGING_BYTES_MAX: u64 = 256 * 1024 * 1024;
    /// The share of one partition in that.
    const LAGGING_SHARE: std::ops::RangeInclusive<u64> = 1024 * 1024..=32 * 1024 * 1024;

    /// The limits of each copy on a node that holds `placements` copies.
    pub fn of_node(placements: usize) -> Self {
        let placements = u64::try_from(placements.max(1)).unwrap_or(u64::MAX);
        let share = Self::LAGGING_BYTES_MAX / placements;
        Self {
            pinned_bytes_max: Self::PINNED_BYTES_MAX,
            lagging_bytes_max: share.clamp(*Self::LAGGING_SHARE.start(), *Self::LAGGING_SHARE.end()),
        }
    }
}

/// A copy that this leader gives: the log is kept for it, and its pages may be read, as long as this stands.
#[derive(Debug)]
pub struct Pin<G> {
    /// The log is kept from the entry after this one on.
    pub seq: Seq,
    /// The leadership that gives it.
    pub epoch: Epoch,
    /// Ends the reading of pages, when this is dropped.
    pub guard: G,
}

/// The log of one copy.
#[derive(Debug)]
pub struct Retention<G> {
    /// Up to here the engine is complete on the disk.
    complete: Position,
    /// The trim mark last written.
    trimmed: Seq,
    /// The copies given, per loader.
    pins: BTreeMap<PlacementId, Pin<G>>,
    /// Up to where other copies were last known to hold the log.
    lagging: BTreeMap<PlacementId, Seq>,
    /// Bytes ever logged, and how many at some positions: to bound what is kept.
    logged_bytes: u64,
    marks: VecDeque<(Seq, u64)>,
}

impl<G> Retention<G> {
    /// The retention of a log that begins after `trimmed`, over an engine that is complete up to `complete`.
    pub fn new(complete: Position, trimmed: Seq) -> Self {
        let (pins, lagging) = (BTreeMap::new(), BTreeMap::new());
        Self { complete, trimmed, pins, lagging, logged_bytes: 0, marks: VecDeque::new() }
    }

    /// The log begins anew after `base`: a copy has taken the place of what was there.
    pub fn restart(&mut self, base: Position) {
        let logged_bytes = self.logged_bytes;
        *self = Self { logged_bytes, ..Self::new(base, base.seq) };
    }

    /// A copy is about to be pulled: the engine is complete to nothing.
    pub const fn empty(&mut self) {
        self.complete = Position::ZERO;
    }

    /// Up to here the engine is complete on the disk.
    pub const fn complete(&self) -> Position {
        self.complete
    }

    /// Bytes ever logged.
    pub const fn logged_bytes(&self) -> u64 {
        self.logged_bytes
    }

    /// Takes in that an entry of so many bytes is logged.
    pub const fn logged(&mut self, bytes: u64) {
        self.logged_bytes += bytes;
    }

    /// Keeps the log for a loader, in place of what was kept for it before.
    pub fn pin(&mut self, loader: PlacementId, pin: Pin<G>) {
        self.pins.insert(loader, pin);
    }

    /// From where on the log is kept for a loader.
    pub fn pinned(&self, loader: PlacementId) -> Option<Seq> {
        self.pins.get(&loader).map(|pin| pin.seq)
    }

    /// Ends the copies given in a leadership that is over; `gives` is the epoch in which copies are given now, if they are.
    /// To be called before anything that a replica wants done is carried out: the space may be emptied next.
    pub fn end_spoilt(&mut self, gives: Option<Epoch>) {
        self.pins.retain(|_, pin| gives == Some(pin.epoch));
    }

    /// Takes in that the engine is complete up to `complete` on the disk. `None`: that is no news. `Some(None)`: it is, and the log
    /// may forget nothing. `Some(Some(base))`: the log may begin after `base`, which is to be durable before anything is forgotten.
    pub fn completed(
        &mut self,
        placement: PlacementId,
        replica: &Replica,
        complete: Position,
        limits: RetentionLimits,
    ) -> Option<Option<Position>> {
        if complete.seq <= self.complete.seq {
            return None;
        }
        self.complete = complete;
        self.mark(replica.last().seq);
        let row = replica.configuration().map(|configuration| &configuration.row);
        let floor = row.map_or(self.trimmed, |row| self.floor(placement, row, |id| replica.held_by(id), limits));
        let base = (floor > self.trimmed).then(|| replica.position_at(floor)).flatten();
        if base.is_some() {
            self.trimmed = floor;
        }
        Some(base)
    }

    /// The last position up to which the log may be forgotten: what the engine has, except what a copy or a follower
    /// still needs. A pin of too much is given up; its copy begins anew. For one that is away, nothing is known of or does
    /// not count, as much is kept as may be, here and at whoever may lead next.
    fn floor(
        &mut self,
        placement: PlacementId,
        row: &Partition,
        held_by: impl Fn(PlacementId) -> Option<Seq>,
        limits: RetentionLimits,
    ) -> Seq {
        let loads = |id: &PlacementId| row.placement(*id).is_some_and(|row| row.state == ReplicaState::Load);
        let mut pins: Vec<(PlacementId, Seq)> =
            self.pins.iter().map(|(id, pin)| (*id, pin.seq)).filter(|(id, _)| loads(id)).collect();
        let leads = row.leader == Some(placement);
        self.lagging.retain(|id, _| row.placement(*id).is_some_and(|other| other.state != ReplicaState::Unload));
        let mut kept = self.complete.seq;
        for other in row.placements.iter().filter(|other| other.id != placement) {
            let Some(held) = held_by(other.id) else {
                // A follower keeps nothing for those that count: they hold everything.
                if other.state == ReplicaState::Load || (leads && other.state == ReplicaState::Live) {
                    let held = *self.lagging.entry(other.id).or_insert(self.trimmed);
                    if held >= self.trimmed && self.bytes_since(held) <= limits.lagging_bytes_max {
                        kept = kept.min(held);
                    }
                } else {
                    self.lagging.remove(&other.id);
                }
                continue;
            };
            self.lagging.insert(other.id, held);
            match pins.iter_mut().find(|(id, _)| *id == other.id) {
                Some((_, seq)) => *seq = held.max(*seq),
                None => pins.push((other.id, held)),
            }
        }
        pins.retain(|(_, seq)| self.bytes_since(*seq) <= limits.pinned_bytes_max);
        self.pins.retain(|id, _| pins.iter().any(|(pinned, _)| pinned == id));
        pins.into_iter().map(|(_, seq)| seq).fold(kept, Seq::min)
    }

    /// Notes how many bytes were logged by now.
    fn mark(&mut self, at: Seq) {
        const MARKS_MAX: usize = 4_096;
        self.marks.push_back((at, self.logged_bytes));
        while self.marks.len() > MARKS_MAX || self.marks.get(1).is_some_and(|(seq, _)| *seq <= self.trimmed) {
            self.marks.pop_front();
        }
    }

    /// Bytes logged since `seq`, by the marks.
    fn bytes_since(&self, seq: Seq) -> u64 {
        let before = self.marks.iter().rev().find(|(at, _)| *at <= seq).or_else(|| self.marks.front());
        self.logged_bytes - before.map_or(self.logged_bytes, |(_, bytes)| *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{NodeId, PartitionId, PartitionStatus, Placement, TableId, Version};

    const OWN: PlacementId = PlacementId::new(1);

    /// The row of a partition that placement 3 leads, with placement 2 in `other`.
    fn row(other: ReplicaState) -> Partition {
        let placement = |id: u64, state| Placement { id: PlacementId::new(id), node: NodeId::new(id), state };
        Partition {
            id: PartitionId::new(TableId::new(1), 0),
            epoch: Epoch::new(1),
            version: Version::new(1),
            status: PartitionStatus::Online,
            leader: Some(PlacementId::new(3)),
            placements: vec![placement(1, ReplicaState::Live), placement(2, other), placement(3, ReplicaState::Live)],
            min_in_sync: 2,
            range: archon_types::KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        }
    }

    /// A log of ten entries of ten bytes, all of which the engine holds.
    fn retention() -> Retention<()> {
        let mut retention = Retention::new(Position::new(Epoch::new(1), Seq::new(10)), Seq::ZERO);
        retention.mark(Seq::ZERO);
        retention.logged(100);
        retention
    }

    fn limits(pinned_bytes_max: u64, lagging_bytes_max: u64) -> RetentionLimits {
        RetentionLimits { pinned_bytes_max, lagging_bytes_max }
    }

    #[test]
    fn the_log_is_kept_for_a_copy_that_is_away_but_not_for_ever() {
        let mut retention = retention();
        let mut floor = |other, lagging| retention.floor(OWN, &row(other), |_| None, limits(1_000, lagging));
        assert_eq!(floor(ReplicaState::Live, 1_000), Seq::new(10), "whoever counts holds everything");
        assert_eq!(floor(ReplicaState::Load, 1_000), Seq::ZERO, "it is away");
        assert_eq!(floor(ReplicaState::Load, 99), Seq::new(10), "it has been away for too long");
        assert_eq!(floor(ReplicaState::Live, 1_000), Seq::new(10), "it is back");
    }

    #[test]
    fn the_log_is_kept_for_a_copy_that_is_pulled_until_it_keeps_too_much() {
        let mut retention = retention();
        let loader = PlacementId::new(2);
        retention.pin(loader, Pin { seq: Seq::new(4), epoch: Epoch::new(1), guard: () });
        let loading = row(ReplicaState::Load);
        let none = |_| None;
        assert_eq!(retention.floor(OWN, &loading, none, limits(100, 0)), Seq::new(4));
        assert_eq!(retention.floor(OWN, &loading, none, limits(99, 0)), Seq::new(10));
        assert_eq!(retention.pinned(loader), None, "its copy begins anew");
    }

    #[test]
    fn a_copy_ends_with_the_leadership_that_gives_it() {
        let mut retention = retention();
        let loader = PlacementId::new(2);
        let mut pin = |gives| {
            retention.pin(loader, Pin { seq: Seq::new(4), epoch: Epoch::new(1), guard: () });
            retention.end_spoilt(gives);
            retention.pinned(loader).is_some()
        };
        assert_eq!([Some(Epoch::new(1)), Some(Epoch::new(2)), None].map(&mut pin), [true, false, false]);
    }
}
