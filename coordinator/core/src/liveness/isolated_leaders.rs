//! Leaders that hear too few followers (PROTOCOL rule 6). Dropping the silent ones would leave fewer than
//! `min_in_sync`, so that is refused, and the leader admits no write. If another Live copy would do better, the
//! leadership is moved there, through release, and not again soon: in a partial network partition it would bounce
//! forever.
//!
//! Reachability is inferred from the regular work of leaders: a node that serves as leader of some partition reaches
//! every follower that is Live there, or it would have reported within the replication time-out that it is silent. A
//! node without such evidence does not get the leadership.

use crate::state::ClusterState;
use archon_types::{
    Epoch, Millis, NodeId, Partition, PartitionId, PartitionStatus, Placement, PlacementId, ReplicaName,
};
use std::collections::{BTreeMap, BTreeSet};

/// Validity of a leader's report that a follower is silent, in milliseconds.
const SILENT_MS: u64 = 30_000;
/// Time for which people see such a report, in milliseconds: a leader that recovers reports nothing more.
const LATELY_MS: u64 = 10_000;
/// The first pause before the leadership of a partition is moved again, in milliseconds; it doubles with every move.
const PAUSE_MS: u64 = 10_000;
/// The longest pause, in milliseconds; after twice that without a move the record is dropped.
const PAUSE_MS_MAX: u64 = 600_000;
/// Time for which the chosen copy is preferred before any other may be elected, in milliseconds.
const WAIT_MS: u64 = 5_000;

/// Report of a leader that may not drop its silent followers.
#[derive(Clone, PartialEq, Eq, Debug)]
struct IsolationReport {
    epoch: Epoch,
    /// The Live copies it hears, including its own.
    hears: BTreeSet<PlacementId>,
    first: Millis,
    last: Millis,
}

/// A moved leadership.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MovedLeadership {
    to: PlacementId,
    /// The ended epoch.
    epoch: Epoch,
    at: Millis,
    times: u32,
}

impl MovedLeadership {
    fn pause_ms(&self) -> u64 {
        PAUSE_MS.saturating_mul(1 << self.times.min(10)).min(PAUSE_MS_MAX)
    }
}

/// Memory of the leading coordinator about isolated leaders.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct IsolatedLeaders {
    isolated: BTreeMap<PartitionId, IsolationReport>,
    /// Time of the last report by the first node that it does not hear the second one.
    silent: BTreeMap<(NodeId, NodeId), Millis>,
    moved: BTreeMap<PartitionId, MovedLeadership>,
}

impl IsolatedLeaders {
    /// Records that a leader on `node` asked to drop these followers.
    pub(crate) fn note(&mut self, row: &Partition, node: NodeId, silent: &[ReplicaName], now: Millis) {
        let is_silent = |id: PlacementId| silent.iter().any(|name| name.placement == id);
        for placement in row.placements.iter().filter(|placement| is_silent(placement.id)) {
            self.silent.insert((node, placement.node), now);
        }
        let hears: BTreeSet<PlacementId> = row.live().map(|live| live.id).filter(|id| !is_silent(*id)).collect();
        if hears.len() >= usize::from(row.min_in_sync) {
            self.isolated.remove(&row.id);
            return;
        }
        let before = self.isolated.get(&row.id).filter(|isolated| isolated.epoch == row.epoch);
        let first = before.map_or(now, |isolated| isolated.first);
        self.isolated.insert(row.id, IsolationReport { epoch: row.epoch, hears, first, last: now });
    }

    /// Returns the leaders that may not go on alone and reported recently, each with its epoch and the number of Live
    /// copies it hears.
    pub(crate) fn refused(&self, now: Millis) -> impl Iterator<Item = (PartitionId, (Epoch, u32))> {
        let lately = self.isolated.iter().filter(move |(_, isolated)| now.since(isolated.last) < LATELY_MS);
        lately.map(|(partition, isolated)| {
            (*partition, (isolated.epoch, u32::try_from(isolated.hears.len()).unwrap_or(u32::MAX)))
        })
    }

    /// Drops expired records.
    pub(crate) fn sync(&mut self, state: &ClusterState, now: Millis) {
        self.silent.retain(|_, at| now.since(*at) < SILENT_MS);
        self.moved.retain(|_, moved| now.since(moved.at) < 2 * PAUSE_MS_MAX);
        self.isolated.retain(|partition, isolated| {
            let row = state.partitions.get(*partition);
            let present = row.is_some_and(|row| row.epoch == isolated.epoch && row.leader.is_some());
            present && now.since(isolated.last) < SILENT_MS
        });
    }

    /// Returns the leaderships that should move now, each with the copy that does better. They count as moved from here
    /// on.
    pub(crate) fn take_due(
        &mut self,
        state: &ClusterState,
        now: Millis,
        may_lead: impl Fn(NodeId) -> bool,
    ) -> Vec<PartitionId> {
        let mut due = Vec::new();
        for (partition, isolated) in &self.isolated {
            let Some(row) = state.partitions.get(*partition) else { continue };
            // The others have a replication time-out to notice the same.
            let settled = now.since(isolated.first) >= 2 * state.settings.replication_timeout_ms;
            let rests = self.moved.get(partition).is_some_and(|moved| now.since(moved.at) < moved.pause_ms());
            if !settled || rests {
                continue;
            }
            let candidates = || row.live().filter(|live| Some(live.id) != row.leader);
            let would_do = |live: &Placement, copies: &mut dyn Iterator<Item = &Placement>| {
                let reached = copies.filter(|other| {
                    other.id == live.id || state.is_alive(other.node) && self.reaches(state, live.node, other.node)
                });
                state.is_active(live.node) && may_lead(live.node) && reached.count() >= usize::from(row.min_in_sync)
            };
            // A copy that need not wait for an addition is better; but if the leader dropped one follower before it
            // found the other silent, too, the only candidate adds the dropped copy while it takes over.
            let better = candidates()
                .find(|live| would_do(live, &mut row.live()))
                .or_else(|| candidates().find(|live| would_do(live, &mut row.placements.iter())));
            if let Some(better) = better {
                due.push((*partition, better.id, isolated.epoch));
            }
        }
        for (partition, to, epoch) in &due {
            let times = self.moved.get(partition).map_or(0, |moved| moved.times + 1);
            self.moved.insert(*partition, MovedLeadership { to: *to, epoch: *epoch, at: now, times });
            self.isolated.remove(partition);
        }
        due.into_iter().map(|(partition, _, _)| partition).collect()
    }

    /// Returns the node chosen here a moment ago to lead next, if it is still able to.
    pub(crate) fn successor(&self, row: &Partition, now: Millis, able: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let moved = self.moved.get(&row.id).filter(|moved| now.since(moved.at) < WAIT_MS)?;
        let same = row.epoch == moved.epoch || moved.epoch.next() == Some(row.epoch);
        let to = row.live().find(|live| same && live.id == moved.to && able(live.node))?;
        (row.leader != Some(to.id)).then_some(to.node)
    }

    /// Returns true if a node serves a partition in which the other one follows, and has not reported it as silent.
    fn reaches(&self, state: &ClusterState, node: NodeId, other: NodeId) -> bool {
        let follows = |row: &Partition| {
            row.status == PartitionStatus::Online
                && row.leader_placement().is_some_and(|leader| leader.node == node)
                && row.live().any(|live| live.node == other)
        };
        !self.silent.contains_key(&(node, other)) && state.partitions.on_node(node).any(follows)
    }
}
