//! Retention: how much of a copy's log is kept for the engine and for other copies.
//!
//! A loader that pulls a copy needs the log from the start of the copy (its leader *pins* it), and a follower that was
//! away briefly should not need a full copy on return. Both are bounded by the bytes that the copy itself has logged
//! and by the bytes that the whole node has logged meanwhile; for absent copies also by time. The log is one per node,
//! and an old record keeps everything behind it. The bounds are checked after syncs of the engine and on ticks, since a
//! copy without writes has no syncs.

use archon_replica::{Position, Replica};
use archon_types::{Epoch, Millis, Partition, PlacementId, ReplicaState, Seq};
use std::collections::{BTreeMap, VecDeque};

/// Bounds on the log kept for other copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetentionLimits {
    /// Bytes of its log that one copy being pulled may pin; beyond, the pull restarts.
    pub pinned_bytes_max: u64,
    /// Bytes that the node may log meanwhile, over all partitions, before a copy being pulled restarts.
    pub pinned_distance_max: u64,
    /// Bytes of log kept for an absent copy. Zero keeps none.
    pub lagging_bytes_max: u64,
    /// Bytes that the node may log meanwhile, over all partitions, before nothing is kept for an absent copy.
    pub lagging_distance_max: u64,
    /// Milliseconds after which nothing is kept for an absent copy.
    pub lagging_ms_max: u64,
}

impl RetentionLimits {
    /// Bytes of log that one copy being pulled may pin.
    const PINNED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
    /// Bytes logged by the node while one copy is pulled.
    const PINNED_DISTANCE_MAX: u64 = 4 * 1024 * 1024 * 1024;
    /// The same on a full disk; this little is moved forward in the log.
    const PINNED_FULL_BYTES_MAX: u64 = 8 * 1024 * 1024;
    /// Bytes of log that a node keeps for absent copies, over all partitions: some minutes of small writes.
    const LAGGING_BYTES_MAX: u64 = 256 * 1024 * 1024;
    /// The share of one partition in that.
    const LAGGING_SHARE: std::ops::RangeInclusive<u64> = 1024 * 1024..=32 * 1024 * 1024;
    /// A day: longer than maintenance takes.
    const LAGGING_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

    /// Returns the limits of each copy on a node that holds `placements` copies.
    pub fn of_node(placements: usize) -> Self {
        let placements = u64::try_from(placements.max(1)).unwrap_or(u64::MAX);
        let share = Self::LAGGING_BYTES_MAX / placements;
        Self {
            pinned_bytes_max: Self::PINNED_BYTES_MAX,
            pinned_distance_max: Self::PINNED_DISTANCE_MAX,
            lagging_bytes_max: share.clamp(*Self::LAGGING_SHARE.start(), *Self::LAGGING_SHARE.end()),
            lagging_distance_max: Self::LAGGING_BYTES_MAX,
            lagging_ms_max: Self::LAGGING_MS_MAX,
        }
    }

    /// Lowers the limits for a disk of this size: an eighth of it for absent copies, a quarter for a copy being pulled.
    #[must_use]
    pub fn on_disk(self, placements: usize, disk_bytes: u64) -> Self {
        let placements = u64::try_from(placements.max(1)).unwrap_or(u64::MAX);
        let all = disk_bytes / 8;
        Self {
            pinned_bytes_max: self.pinned_bytes_max.min(disk_bytes / 4),
            lagging_bytes_max: self.lagging_bytes_max.min(all / placements),
            lagging_distance_max: self.lagging_distance_max.min(all),
            ..self
        }
    }

    /// Lowers the limits while the disk is full: nothing is kept for absent copies, little for those being pulled.
    #[must_use]
    pub fn on_full_disk(self) -> Self {
        let pinned_bytes_max = self.pinned_bytes_max.min(Self::PINNED_FULL_BYTES_MAX);
        Self { pinned_bytes_max, lagging_bytes_max: 0, ..self }
    }
}

/// The local time and the log volume of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogClock {
    /// The local clock.
    pub now: Millis,
    /// Bytes that the node has written to its log since it started, over all partitions.
    pub written: u64,
}

/// Interval between checks of the bounds without engine syncs, in milliseconds.
const REVIEW_MS: u64 = 1_000;

/// Pin of a copy that this leader serves: while it exists, the log is kept and its pages may be read.
#[derive(Debug)]
pub struct Pin<G> {
    /// The log is kept from the entry after this one.
    pub seq: Seq,
    /// The leadership that serves it.
    pub epoch: Epoch,
    /// Ends the reading of pages when dropped.
    pub guard: G,
}

/// Retention state of one copy's log.
#[derive(Debug)]
pub struct Retention<G> {
    /// Position up to which the engine is complete on disk.
    complete: Position,
    /// The trim mark last written.
    trimmed: Seq,
    /// Pins by loader.
    pins: BTreeMap<PlacementId, Pin<G>>,
    /// Last known log end of other copies.
    lagging: BTreeMap<PlacementId, LaggingCopy>,
    /// Copies for which the log is no longer kept, to be reported.
    given_up: Vec<PlacementId>,
    /// Bytes ever logged.
    logged_bytes: u64,
    /// Clock readings at some positions, to bound the log that is kept.
    marks: VecDeque<Mark>,
    /// Time of the last check of the bounds.
    reviewed: Millis,
}

/// Copy that may need the log.
#[derive(Clone, Copy, Debug)]
struct LaggingCopy {
    held: Seq,
    /// The log is kept for it.
    kept: bool,
}

/// Clock readings when the log ended with `seq`, or soon after.
#[derive(Clone, Copy, Debug)]
struct Mark {
    seq: Seq,
    logged_bytes: u64,
    at: LogClock,
}

impl<G> Retention<G> {
    /// Starts with a log that begins after `trimmed`, over an engine that is complete up to `complete`.
    pub fn new(complete: Position, trimmed: Seq) -> Self {
        Self {
            complete,
            trimmed,
            pins: BTreeMap::new(),
            lagging: BTreeMap::new(),
            given_up: Vec::new(),
            logged_bytes: 0,
            marks: VecDeque::new(),
            reviewed: Millis::ZERO,
        }
    }

    /// Restarts the log after `base`: a pulled copy has replaced the previous data.
    pub fn restart(&mut self, base: Position) {
        let logged_bytes = self.logged_bytes;
        *self = Self { logged_bytes, ..Self::new(base, base.seq) };
    }

    /// Resets the engine position, as a copy is about to be pulled.
    pub const fn empty(&mut self) {
        self.complete = Position::ZERO;
    }

    /// Returns the position up to which the engine is complete on disk.
    pub const fn complete(&self) -> Position {
        self.complete
    }

    /// Returns the bytes ever logged.
    pub const fn logged_bytes(&self) -> u64 {
        self.logged_bytes
    }

    /// Records an entry of this many bytes.
    pub const fn logged(&mut self, bytes: u64) {
        self.logged_bytes += bytes;
    }

    /// Pins the log for a loader, replacing its earlier pin.
    pub fn pin(&mut self, loader: PlacementId, pin: Pin<G>) {
        self.pins.insert(loader, pin);
    }

    /// Returns the position after which the log is kept for a loader.
    pub fn pinned(&self, loader: PlacementId) -> Option<Seq> {
        self.pins.get(&loader).map(|pin| pin.seq)
    }

    /// Drops pins of a past leadership; `gives` is the epoch in which copies are served now, if any. Call this before
    /// carrying out any output of the replica: the space may be emptied next.
    pub fn end_spoilt(&mut self, gives: Option<Epoch>) {
        self.pins.retain(|_, pin| gives == Some(pin.epoch));
    }

    /// Records that the engine is complete up to `complete` on disk. Returns `None` if that was known, `Some(None)` if
    /// the log may not be trimmed, and `Some(Some(base))` if it may begin after `base`, which must be durable before
    /// the trim.
    pub fn completed(
        &mut self,
        placement: PlacementId,
        replica: &Replica,
        complete: Position,
        limits: RetentionLimits,
        at: LogClock,
    ) -> Option<Option<Position>> {
        if complete.seq <= self.complete.seq {
            return None;
        }
        self.complete = complete;
        self.mark(replica.last().seq, at);
        Some(self.advance(placement, replica, limits, at))
    }

    /// Returns whether the bounds are due for a check.
    pub fn is_review_due(&self, now: Millis) -> bool {
        now.since(self.reviewed) >= REVIEW_MS
    }

    /// Checks the bounds without a sync of the engine: copies come back and go, and other partitions' writes extend the
    /// node's log. Returns the position after which the log can begin now. It must be durable before the trim.
    pub fn review(
        &mut self,
        placement: PlacementId,
        replica: &Replica,
        limits: RetentionLimits,
        at: LogClock,
    ) -> Option<Position> {
        self.reviewed = at.now;
        if self.complete.seq <= self.trimmed {
            return None;
        }
        if self.marks.is_empty() {
            // As after a start, when log times are unknown.
            self.mark(replica.last().seq, at);
        }
        self.advance(placement, replica, limits, at)
    }

    /// Takes the copies for which the log is no longer kept since the last call; they are loaded when they return.
    pub fn take_given_up(&mut self) -> Vec<PlacementId> {
        std::mem::take(&mut self.given_up)
    }

    fn advance(
        &mut self,
        placement: PlacementId,
        replica: &Replica,
        limits: RetentionLimits,
        at: LogClock,
    ) -> Option<Position> {
        let row = replica.configuration().map(|configuration| &configuration.row);
        let floor = row.map_or(self.trimmed, |row| self.floor(placement, row, |id| replica.held_by(id), limits, at));
        let base = (floor > self.trimmed).then(|| replica.position_at(floor)).flatten();
        if base.is_some() {
            self.trimmed = floor;
        }
        base
    }

    /// Returns the position up to which the log may be trimmed: the engine's, lowered for copies and followers that
    /// still need it. A pin above its bounds is dropped, and its copy restarts. For copies that are absent, unknown or
    /// not in sync, the log is kept within the limits, here and at other possible leaders.
    fn floor(
        &mut self,
        placement: PlacementId,
        row: &Partition,
        held_by: impl Fn(PlacementId) -> Option<Seq>,
        limits: RetentionLimits,
        at: LogClock,
    ) -> Seq {
        let loads = |id: &PlacementId| row.placement(*id).is_some_and(|row| row.state == ReplicaState::Load);
        let mut pins: Vec<(PlacementId, Seq)> =
            self.pins.iter().map(|(id, pin)| (*id, pin.seq)).filter(|(id, _)| loads(id)).collect();
        let leads = row.leader == Some(placement);
        self.lagging.retain(|id, _| row.placement(*id).is_some_and(|other| other.state != ReplicaState::Unload));
        let mut kept = self.complete.seq;
        for other in row.placements.iter().filter(|other| other.id != placement) {
            let Some(held) = held_by(other.id) else {
                // A follower keeps nothing for in-sync copies: they hold everything.
                if other.state == ReplicaState::Load || (leads && other.state == ReplicaState::Live) {
                    let known = self.lagging.get(&other.id).copied();
                    let LaggingCopy { held, kept: was_kept } =
                        known.unwrap_or(LaggingCopy { held: self.trimmed, kept: true });
                    let is_kept = held >= self.trimmed && self.keeps_lagging(held, limits, at);
                    if is_kept {
                        kept = kept.min(held);
                    } else if was_kept && held < self.complete.seq {
                        self.given_up.push(other.id);
                    }
                    self.lagging.insert(other.id, LaggingCopy { held, kept: is_kept });
                } else {
                    self.lagging.remove(&other.id);
                }
                continue;
            };
            self.lagging.insert(other.id, LaggingCopy { held, kept: true });
            match pins.iter_mut().find(|(id, _)| *id == other.id) {
                Some((_, seq)) => *seq = held.max(*seq),
                None => pins.push((other.id, held)),
            }
        }
        pins.retain(|(_, seq)| {
            self.bytes_since(*seq) <= limits.pinned_bytes_max && self.distance(*seq, at) <= limits.pinned_distance_max
        });
        self.pins.retain(|id, _| pins.iter().any(|(pinned, _)| pinned == id));
        pins.into_iter().map(|(_, seq)| seq).fold(kept, Seq::min)
    }

    fn keeps_lagging(&self, held: Seq, limits: RetentionLimits, at: LogClock) -> bool {
        let since = self.mark_after(held).map_or(at.now, |mark| mark.at.now);
        limits.lagging_bytes_max > 0
            && self.bytes_since(held) <= limits.lagging_bytes_max
            && self.distance(held, at) <= limits.lagging_distance_max
            && at.now.since(since) <= limits.lagging_ms_max
    }

    /// Records the clock readings of this position.
    fn mark(&mut self, seq: Seq, at: LogClock) {
        const MARKS_MAX: usize = 4_096;
        self.marks.push_back(Mark { seq, logged_bytes: self.logged_bytes, at });
        while self.marks.len() > MARKS_MAX || self.marks.get(1).is_some_and(|mark| mark.seq <= self.trimmed) {
            self.marks.pop_front();
        }
    }

    /// Returns the bytes logged since `seq`, by the marks.
    fn bytes_since(&self, seq: Seq) -> u64 {
        let before = self.marks.iter().rev().find(|mark| mark.seq <= seq).or_else(|| self.marks.front());
        self.logged_bytes - before.map_or(self.logged_bytes, |mark| mark.logged_bytes)
    }

    /// Returns the bytes that the node has logged since the first record after `seq`, over all partitions, by the
    /// marks. Never an overestimate.
    fn distance(&self, seq: Seq, at: LogClock) -> u64 {
        self.mark_after(seq).map_or(0, |mark| at.written.saturating_sub(mark.at.written))
    }

    /// Returns the first mark at which a record after `seq` existed. A mark before it may be much older than the
    /// record.
    fn mark_after(&self, seq: Seq) -> Option<&Mark> {
        let index = self.marks.partition_point(|mark| mark.seq <= seq);
        self.marks.get(index)
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
        retention.mark(Seq::ZERO, LogClock::default());
        retention.logged(100);
        retention
    }

    fn limits(pinned_bytes_max: u64, lagging_bytes_max: u64) -> RetentionLimits {
        RetentionLimits { pinned_bytes_max, lagging_bytes_max, ..RetentionLimits::of_node(1) }
    }

    fn clock(now: u64, written: u64) -> LogClock {
        LogClock { now: Millis::new(now), written }
    }

    #[test]
    fn log_for_absent_copy_is_kept_within_limit() {
        let mut retention = retention();
        let mut floor =
            |other, lagging| retention.floor(OWN, &row(other), |_| None, limits(1_000, lagging), LogClock::default());
        assert_eq!(floor(ReplicaState::Live, 1_000), Seq::new(10), "whoever counts holds everything");
        assert_eq!(floor(ReplicaState::Load, 1_000), Seq::ZERO, "it is away");
        assert_eq!(floor(ReplicaState::Load, 99), Seq::new(10), "it has been away for too long");
        assert_eq!(floor(ReplicaState::Live, 1_000), Seq::new(10), "it is back");
    }

    #[test]
    fn log_for_pulled_copy_is_kept_within_limit() {
        let mut retention = retention();
        let loader = PlacementId::new(2);
        retention.pin(loader, Pin { seq: Seq::new(4), epoch: Epoch::new(1), guard: () });
        let loading = row(ReplicaState::Load);
        let none = |_| None;
        assert_eq!(retention.floor(OWN, &loading, none, limits(100, 0), LogClock::default()), Seq::new(4));
        assert_eq!(retention.floor(OWN, &loading, none, limits(99, 0), LogClock::default()), Seq::new(10));
        assert_eq!(retention.pinned(loader), None, "its replica begins anew");
    }

    #[test]
    fn pin_ends_with_its_leadership() {
        let mut retention = retention();
        let loader = PlacementId::new(2);
        let mut pin = |gives| {
            retention.pin(loader, Pin { seq: Seq::new(4), epoch: Epoch::new(1), guard: () });
            retention.end_spoilt(gives);
            retention.pinned(loader).is_some()
        };
        assert_eq!([Some(Epoch::new(1)), Some(Epoch::new(2)), None].map(&mut pin), [true, false, false]);
    }

    /// One entry of a quiet partition, written long after those before it, while the other copy is away.
    fn quiet() -> Retention<()> {
        let mut retention = retention();
        retention.marks.clear();
        retention.mark(Seq::new(9), clock(0, 0));
        retention.trimmed = Seq::new(9);
        retention.lagging.insert(PlacementId::new(2), LaggingCopy { held: Seq::new(9), kept: true });
        retention.mark(Seq::new(10), clock(50_000, 10_000));
        retention
    }

    #[test]
    fn quiet_log_is_kept_within_node_log_distance() {
        let limits = RetentionLimits { lagging_distance_max: 500, ..limits(1_000, 1_000) };
        let floor =
            |retention: &mut Retention<()>, at| retention.floor(OWN, &row(ReplicaState::Load), |_| None, limits, at);
        let mut retention = quiet();
        assert_eq!(floor(&mut retention, clock(60_000, 10_500)), Seq::new(9), "it was logged 500 bytes ago");
        assert!(retention.take_given_up().is_empty());
        assert_eq!(floor(&mut retention, clock(60_000, 10_501)), Seq::new(10));
        assert_eq!(retention.take_given_up(), [PlacementId::new(2)]);
        assert_eq!(floor(&mut retention, clock(60_000, 10_501)), Seq::new(10));
        assert!(retention.take_given_up().is_empty(), "that is reported once");
    }

    #[test]
    fn quiet_log_is_kept_one_day_at_most() {
        let day = RetentionLimits::of_node(1).lagging_ms_max;
        let mut retention = quiet();
        let mut floor = |at| retention.floor(OWN, &row(ReplicaState::Load), |_| None, limits(1_000, 1_000), at);
        assert_eq!(floor(clock(day, 10_000)), Seq::new(9));
        assert_eq!(floor(clock(50_001 + day, 10_000)), Seq::new(10));
    }

    #[test]
    fn small_disk_lowers_limits_to_its_share() {
        let limits = RetentionLimits::of_node(8);
        assert_eq!(limits.on_disk(8, 1 << 40), limits);
        let small = limits.on_disk(8, 64 << 20);
        assert_eq!((small.lagging_bytes_max, small.lagging_distance_max), (1 << 20, 8 << 20));
        assert_eq!(small.pinned_bytes_max, 16 << 20);
    }

    #[test]
    fn full_disk_keeps_no_log_for_absent_copies() {
        let mut retention = quiet();
        let full = limits(1_000, 1_000).on_full_disk();
        assert_eq!(retention.floor(OWN, &row(ReplicaState::Load), |_| None, full, clock(60_000, 10_000)), Seq::new(10));
    }

    #[test]
    fn pin_is_dropped_beyond_node_log_distance() {
        let mut retention = retention();
        retention.mark(Seq::new(10), clock(0, 0));
        let loader = PlacementId::new(2);
        retention.pin(loader, Pin { seq: Seq::new(4), epoch: Epoch::new(1), guard: () });
        let limits = RetentionLimits { pinned_distance_max: 500, ..limits(1_000, 0) };
        let mut floor = |written| retention.floor(OWN, &row(ReplicaState::Load), |_| None, limits, clock(0, written));
        assert_eq!([500, 501].map(&mut floor), [Seq::new(4), Seq::new(10)]);
        assert_eq!(retention.pinned(loader), None);
    }
}
