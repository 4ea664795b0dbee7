//! Volatile memory of the leading coordinator about the nodes' incarnations: the last heartbeat, the last lease
//! extension, and the withdrawn leaderships. A new leader starts empty (PROTOCOL rules 13 to 16).
//!
//! All instants are on this coordinator's own monotonic clock.

pub(crate) mod confirm;
pub(crate) mod failover;
mod isolated_leaders;
pub(crate) mod reachability;
pub(crate) mod unreached;
mod withdrawals;

use crate::findings::unavailable_partitions::UnavailablePartitions;
use crate::leases::Churn;
use crate::liveness::isolated_leaders::IsolatedLeaders;
use crate::liveness::reachability::Reachability;
use crate::liveness::withdrawals::{Withdrawals, WithdrawnLeadership};
use crate::mutant::Mutant;
use crate::operator::countdowns::Countdowns;
use crate::ranges::automatic_merges::AutomaticMerges;
use crate::ranges::automatic_splits::AutomaticSplits;
use crate::ranges::merges::Merges;
use crate::ranges::splits::Splits;
use crate::state::ClusterState;
use crate::state::former_leaders::FormerLeader;
use archon_types::{Epoch, ErrorDetail, ErrorKind, Incarnation, Millis, NodeId, NodeStatus, PartitionId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum time between two proposals of an edit without effect for the same row version, in milliseconds.
const REPEAT_MS: u64 = 1_000;

/// Answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatAnswer {
    /// Time for which the node may serve, counted from the sending of the heartbeat.
    pub lease_ms: u64,
    /// Leaderships of this incarnation that the lease does not cover. The node stops serving them permanently and
    /// reports `Released`.
    pub withdrawn: Vec<(PartitionId, Epoch)>,
    /// Time for which a follower may leave its leader without an answer, from the present settings.
    pub replication_timeout_ms: u64,
}

/// Memory of one node's present incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IncarnationState {
    incarnation: Incarnation,
    /// The highest number of its heartbeats; zero before the first.
    number: u64,
    /// Time of its last heartbeat, or of its first mention.
    heard: Millis,
    /// Time of its last lease extension.
    answered: Option<Millis>,
    /// Time at which its failure was proposed: since then it gets no answer (rule 15).
    failing: Option<Millis>,
    /// Proposals of its failure that were passed to Raft, or are about to be.
    failures_proposed: u32,
    /// It announced that it is about to exit: it gets no further grant.
    stopping: bool,
    /// Its failure time-out, in milliseconds.
    timeout_ms: u64,
}

impl IncarnationState {
    fn new(state: &ClusterState, node: NodeId, incarnation: Incarnation, now: Millis) -> Self {
        let timeout_ms = state.timing_of(node).failure_timeout_ms;
        Self {
            incarnation,
            number: 0,
            heard: now,
            answered: None,
            failing: None,
            failures_proposed: 0,
            stopping: false,
            timeout_ms,
        }
    }
}

/// The leader's memory of incarnations and leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Liveness {
    became_leader_at: Millis,
    lives: BTreeMap<NodeId, IncarnationState>,
    /// The last answers to replaced incarnations, each kept for that incarnation's failure time-out, in milliseconds.
    earlier: BTreeMap<(NodeId, Incarnation), (Millis, u64)>,
    /// Leaderships that no lease covers any longer.
    withdrawals: Withdrawals,
    /// Time since each leader has been asked to hand over.
    pub(crate) hand_overs: BTreeMap<PartitionId, (Epoch, Millis)>,
    /// The row version for which an edit was proposed last, and its time.
    proposed: BTreeMap<PartitionId, (Version, Millis)>,
    /// The highest assigned placement number, which may not be in the state yet.
    pub(crate) placement_last: u64,
    /// The applied index and the next instant for which the last full pass was made.
    pub(crate) passed: Option<(u64, Millis)>,
    /// Leaders that hear too few followers (rule 6).
    pub(crate) isolated: IsolatedLeaders,
    /// Nodes that clients cannot reach (rules 74 to 76).
    pub(crate) doors: Reachability,
    /// Time since each failed node is known to be failed.
    failed_since: BTreeMap<NodeId, Millis>,
    /// A superset of the nodes that are being failed or about to exit.
    excluded: BTreeSet<NodeId>,
    /// Versions of the rows of nodes and participants up to which incarnations are recorded here.
    synced: (Version, Version),
    /// Participants that came, went or gave partitions up.
    pub(crate) churn: Churn,
    /// Start of the unavailability of partitions.
    pub(crate) unserved: UnavailablePartitions,
    /// Splits in progress.
    pub(crate) splits: Splits,
    /// Automatic splits.
    pub(crate) automatic_splits: AutomaticSplits,
    /// Automatic merges.
    pub(crate) automatic_merges: AutomaticMerges,
    pub(crate) merges: Merges,
    /// Remaining time of orders with an automatic end.
    pub(crate) countdowns: Countdowns,
    /// Advance of the wall clock over this coordinator's monotonic clock.
    wall_ahead_ms: u64,
    /// No node's time-out passes before this time, and the failure time-out used to compute it.
    nobody_fails_before: Option<(Millis, u64)>,
}

impl Liveness {
    /// Creates the memory of a coordinator that begins to lead at `now`.
    pub fn new(now: Millis) -> Self {
        Self {
            became_leader_at: now,
            lives: BTreeMap::new(),
            earlier: BTreeMap::new(),
            withdrawals: Withdrawals::default(),
            hand_overs: BTreeMap::new(),
            proposed: BTreeMap::new(),
            placement_last: 0,
            passed: None,
            isolated: IsolatedLeaders::default(),
            doors: Reachability::default(),
            failed_since: BTreeMap::new(),
            excluded: BTreeSet::new(),
            synced: (Version::ZERO, Version::ZERO),
            churn: Churn::new(now),
            unserved: UnavailablePartitions::default(),
            splits: Splits::default(),
            automatic_splits: AutomaticSplits::default(),
            automatic_merges: AutomaticMerges::default(),
            merges: Merges::default(),
            countdowns: Countdowns::default(),
            wall_ahead_ms: 0,
            nobody_fails_before: None,
        }
    }

    /// Restarts the timers that count silence, after a time in which no heartbeats could arrive.
    pub(crate) fn resume(&mut self, now: Millis) {
        self.became_leader_at = now;
        self.nobody_fails_before = None;
        self.hand_overs.clear();
        self.passed = None;
    }

    /// Sets the wall clock. No time-out depends on it: it dates displayed values.
    pub const fn set_wall(&mut self, now: Millis, wall: Millis) {
        self.wall_ahead_ms = wall.since(now);
    }

    /// Returns the wall clock.
    pub(crate) const fn wall(&self, now: Millis) -> Millis {
        now.plus(self.wall_ahead_ms)
    }

    /// Returns the time at which this coordinator's leadership or present session began.
    pub const fn became_leader_at(&self) -> Millis {
        self.became_leader_at
    }

    /// Records incarnations that began or ended in the state.
    pub fn sync(&mut self, state: &ClusterState, now: Millis) {
        self.failed_since.retain(|node, _| state.node(*node).is_some_and(|row| row.node.status == NodeStatus::Failed));
        self.churn.sync(state.participants_version > self.synced.1, now);
        self.unserved.sync(state, now);
        self.countdowns.sync(state, now);
        let participants = state.participants.newer_than(self.synced.1);
        for row in state.nodes.newer_than(self.synced.0).chain(participants).map(|row| &row.node) {
            if row.status == NodeStatus::Failed {
                self.failed_since.entry(row.id).or_insert(now);
            }
            let known = self.lives.get(&row.id);
            let same = known.is_some_and(|life| life.incarnation == row.incarnation);
            if let Some(life) = known
                && !same
                && let Some(answered) = life.answered
            {
                self.earlier.insert((row.id, life.incarnation), (answered, life.timeout_ms));
            }
            if row.status != NodeStatus::Alive {
                if let Some(life) = self.lives.remove(&row.id)
                    && let Some(answered) = life.answered
                {
                    self.earlier.insert((row.id, life.incarnation), (answered, life.timeout_ms));
                }
            } else if !same {
                let life = IncarnationState::new(state, row.id, row.incarnation, now);
                self.lives.insert(row.id, life);
                if let Some((at, _)) = &mut self.nobody_fails_before {
                    *at = (*at).min(now.plus(life.timeout_ms));
                }
            }
        }
        self.synced = (state.nodes_version, state.participants_version);
        let lives = &self.lives;
        self.excluded.retain(|node| lives.get(node).is_some_and(|life| life.failing.is_some() || life.stopping));
        self.isolated.sync(state, now);
        self.earlier.retain(|_, (answered, timeout_ms)| now.since(*answered) <= *timeout_ms);
        self.withdrawals.sync(state);
        self.proposed.retain(|partition, (version, when)| {
            now.since(*when) < REPEAT_MS && state.partitions.get(*partition).is_some_and(|row| row.version == *version)
        });
    }

    /// Records a heartbeat, the incarnation's `number`th. Returns true if it is a sign of life: a repeated or overtaken
    /// heartbeat shows nothing about the present and is not answered (rule 56).
    ///
    /// # Errors
    /// `StaleIncarnation` if this incarnation is fenced: the node should register again. `Unavailable` (retryable) if
    /// its registration is not applied here yet, or if it is being failed: that may not be committed, and a coordinator
    /// that was paused, and no longer leads, takes all nodes for silent.
    pub fn heard(
        &mut self,
        state: &ClusterState,
        node: NodeId,
        incarnation: Incarnation,
        number: u64,
        now: Millis,
    ) -> Result<bool, ErrorDetail> {
        state.check_sender(node, incarnation)?;
        let life = self.life(state, node, incarnation, now);
        if life.failing.is_some() && !state.breaks(Mutant::GrantWhileDeciding) {
            return Err(being_failed(state, node));
        }
        if number <= life.number && !state.breaks(Mutant::OldBeatCounts) {
            return Ok(false); // rule 56
        }
        life.number = life.number.max(number);
        life.heard = life.heard.max(now);
        Ok(true)
    }

    /// Returns the answer to a heartbeat, to be called after a quorum round that began after its arrival confirmed this
    /// coordinator as leader, and sent at once. All of it is judged as of now, not as of the arrival of the heartbeat
    /// (rule 54), and the extension is recorded before the answer leaves (rule 55).
    ///
    /// # Errors
    /// Like [`heard`](Self::heard): no lease is granted.
    pub fn answer(
        &mut self,
        state: &ClusterState,
        node: NodeId,
        incarnation: Incarnation,
        now: Millis,
    ) -> Result<HeartbeatAnswer, ErrorDetail> {
        let answer = self.judge(state, node, incarnation, now)?;
        let life = self.life(state, node, incarnation, now);
        life.answered = Some(life.answered.map_or(now, |earlier| earlier.max(now)));
        Ok(answer)
    }

    /// Computes the answer. Only [`answer`](Self::answer) grants it.
    pub(crate) fn judge(
        &mut self,
        state: &ClusterState,
        node: NodeId,
        incarnation: Incarnation,
        now: Millis,
    ) -> Result<HeartbeatAnswer, ErrorDetail> {
        let judged_before = state.breaks(Mutant::JudgedAtArrival); // rule 54
        if !judged_before {
            state.check_sender(node, incarnation)?;
        }
        let failing = self.life(state, node, incarnation, now).failing.is_some();
        if failing && !judged_before && !state.breaks(Mutant::GrantWhileDeciding) {
            return Err(being_failed(state, node)); // rule 15
        }
        let mut withdrawn: Vec<(PartitionId, Epoch)> = self.withdrawals.of(node, incarnation).collect();
        if !state.breaks(Mutant::FormerNotListed) {
            withdrawn.extend(state.former_leaders.of_holder(node, incarnation)); // rule 54
        }
        withdrawn.sort_unstable();
        withdrawn.dedup();
        if state.breaks(Mutant::NodeWideLease) {
            withdrawn.clear(); // rule 15
        }
        let replication_timeout_ms = state.settings.replication_timeout_ms;
        Ok(HeartbeatAnswer { lease_ms: state.timing_of(node).lease_ms, withdrawn, replication_timeout_ms })
    }

    /// Withdraws the present leadership of `partition`: no lease covers it from now on. Returns true if there is one.
    pub fn withdraw(&mut self, state: &ClusterState, partition: PartitionId) -> bool {
        let Some(row) = state.partitions.get(partition) else { return false };
        let Some(leader) = row.leader_placement() else { return false };
        let Some(incarnation) = state.incarnation(leader.node) else { return false };
        let same = |held: &WithdrawnLeadership| held.epoch == row.epoch && held.incarnation == incarnation;
        if !self.withdrawals.get(partition).is_some_and(same) {
            let answered = self.last_answer(state, leader.node, incarnation);
            let withdrawn = WithdrawnLeadership { epoch: row.epoch, node: leader.node, incarnation, answered };
            self.withdrawals.insert(partition, withdrawn);
            self.passed = None;
        }
        true
    }

    /// Returns the partitions with a withdrawn present leadership.
    pub fn withdrawn(&self) -> impl Iterator<Item = (PartitionId, Epoch)> + use<'_> {
        self.withdrawals.iter()
    }

    /// Records that a node is about to exit. Until it has another incarnation it gets no leadership: it would only
    /// release it again, and again, until its time-out. Returns true if that is news, which makes a turn due.
    pub fn note_stopping(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let life = self.lives.get_mut(&node).filter(|life| life.incarnation == incarnation && !life.stopping);
        let Some(life) = life else { return false };
        life.stopping = true;
        self.excluded.insert(node);
        self.passed = None;
        true
    }

    /// Returns the nodes that are about to exit.
    pub(crate) fn stopping(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.excluded.iter().copied().filter(|node| self.lives.get(node).is_some_and(|life| life.stopping))
    }

    /// Returns the time at which the next failed node has been failed for `replace_after_ms`.
    pub(crate) fn replace_due(&self, replace_after_ms: u64, now: Millis) -> Option<Millis> {
        self.failed_since.values().map(|since| since.plus(replace_after_ms)).filter(|due| *due > now).min()
    }

    /// Returns the nodes that may not get a leadership.
    pub(crate) fn excluded(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.excluded.iter().copied().filter(|node| !self.may_lead(*node))
    }

    /// Returns the time at which this coordinator extended the lease of this member last.
    pub(crate) fn extended(&self, member: NodeId) -> Option<Millis> {
        self.lives.get(&member).and_then(|life| life.answered)
    }

    /// Returns true if the node may get a leadership: it is neither being failed nor about to exit.
    pub(crate) fn may_lead(&self, node: NodeId) -> bool {
        self.lives.get(&node).is_none_or(|life| life.failing.is_none() && !life.stopping)
    }

    /// Returns the time from which no lease can cover this former leadership (rule 16).
    pub fn former_over_at(&self, state: &ClusterState, former: &FormerLeader) -> Millis {
        if former.lapsed {
            return Millis::ZERO;
        }
        self.over_at(state, former.failure_timeout_ms, self.last_answer(state, former.node, former.incarnation))
    }

    /// Returns the time from which no lease granted by an earlier coordinator remains.
    pub(crate) fn earlier_leases_over_at(&self, state: &ClusterState) -> Millis {
        let timeouts = state.members().map(|row| state.timing_of(row.node.id).failure_timeout_ms);
        let longest_ms = timeouts.max().unwrap_or(0).max(state.settings.timing.failure_timeout_ms);
        self.over_at(state, longest_ms, None)
    }

    /// Returns the time from which no lease can cover the present leadership of a partition; `None` if it is not
    /// withdrawn.
    pub(crate) fn withdrawn_over_at(&self, state: &ClusterState, partition: PartitionId) -> Option<Millis> {
        let withdrawn = self.withdrawals.get(partition)?;
        let row = state.partitions.get(partition)?;
        let present = row.epoch == withdrawn.epoch && state.incarnation(withdrawn.node) == Some(withdrawn.incarnation);
        let timeout_ms = state.timing_of(withdrawn.node).failure_timeout_ms;
        present.then(|| self.over_at(state, timeout_ms, withdrawn.answered))
    }

    /// Returns the time at which the node is failed if no more heartbeats arrive.
    pub(crate) fn fails_at(&self, state: &ClusterState, node: NodeId) -> Option<Millis> {
        let life = self.lives.get(&node)?;
        let answered = life.answered.filter(|_| !state.breaks(Mutant::FailFromHeard)); // rule 16
        let timeout_ms = state.timing_of(node).failure_timeout_ms;
        Some(self.over_at(state, timeout_ms, Some(answered.unwrap_or_default().max(life.heard))))
    }

    /// Returns the incarnations whose time-out may have passed. A full scan is only needed now and then: heartbeats
    /// only extend the time.
    pub(crate) fn silent(&mut self, state: &ClusterState, now: Millis) -> Vec<(NodeId, Incarnation)> {
        let timeout_ms = state.settings.timing.failure_timeout_ms;
        if self.nobody_fails_before.is_some_and(|(at, reckoned_ms)| now < at && reckoned_ms == timeout_ms) {
            return Vec::new();
        }
        let mut soonest = now.plus(timeout_ms);
        let mut silent = Vec::new();
        for node in state.members().map(|row| &row.node).filter(|node| node.status == NodeStatus::Alive) {
            let Some(at) = self.fails_at(state, node.id) else { continue };
            soonest = soonest.min(at);
            if now >= at {
                silent.push((node.id, node.incarnation));
            }
        }
        self.nobody_fails_before = Some((soonest, timeout_ms));
        silent
    }

    /// Returns the nodes that have been failed for this long.
    pub(crate) fn failed_for(&self, millis: u64, now: Millis) -> impl Iterator<Item = NodeId> + use<'_> {
        self.failed_since.iter().filter(move |(_, since)| now.since(**since) >= millis).map(|(node, _)| *node)
    }

    /// Stops answering an incarnation whose failure is proposed. Returns true if it is to be proposed now: not again
    /// within a second.
    pub(crate) fn stop_answering(&mut self, node: NodeId, now: Millis) -> bool {
        let Some(life) = self.lives.get_mut(&node) else { return false };
        let due = life.failing.is_none_or(|when| now.since(when) >= REPEAT_MS);
        if due {
            life.failing = Some(now);
            life.failures_proposed = life.failures_proposed.saturating_add(1);
            self.excluded.insert(node);
        }
        due
    }

    /// Records that a failure of this incarnation was not passed to Raft. Without another proposal in progress, the
    /// incarnation is answered again.
    pub(crate) fn retract_failure(&mut self, node: NodeId, incarnation: Incarnation) {
        let Some(life) = self.lives.get_mut(&node).filter(|life| life.incarnation == incarnation) else { return };
        life.failures_proposed = life.failures_proposed.saturating_sub(1);
        if life.failures_proposed == 0 {
            life.failing = None;
        }
    }

    /// Returns true if an edit of this row version may be proposed now, and was not just proposed.
    pub(crate) fn may_propose(&self, partition: PartitionId, version: Version, now: Millis) -> bool {
        self.proposed.get(&partition).is_none_or(|(at, when)| *at != version || now.since(*when) >= REPEAT_MS)
    }

    /// Records that an edit of this row version is proposed.
    pub(crate) fn note_proposed(&mut self, partition: PartitionId, version: Version, now: Millis) {
        self.proposed.insert(partition, (version, now));
    }

    /// Returns the time at which the next proposal may be repeated, if one is outstanding.
    pub(crate) fn repeat_at(&self) -> Option<Millis> {
        self.proposed.values().map(|(_, when)| when.plus(REPEAT_MS)).min()
    }

    fn over_at(&self, state: &ClusterState, timeout_ms: u64, answered: Option<Millis>) -> Millis {
        let forgets = state.breaks(Mutant::CoordinatorForgets); // rule 13
        let since = if forgets { Millis::ZERO } else { self.became_leader_at };
        let from = answered.unwrap_or_default().max(since);
        from.plus(timeout_ms)
    }

    fn last_answer(&self, state: &ClusterState, node: NodeId, incarnation: Incarnation) -> Option<Millis> {
        if state.breaks(Mutant::ElectForgets) {
            return None; // rule 16
        }
        match self.lives.get(&node) {
            Some(life) if life.incarnation == incarnation => life.answered,
            _ => self.earlier.get(&(node, incarnation)).map(|(answered, _)| *answered),
        }
    }

    /// Returns the recorded incarnation, creating the record for a new one.
    fn life(
        &mut self,
        state: &ClusterState,
        node: NodeId,
        incarnation: Incarnation,
        now: Millis,
    ) -> &mut IncarnationState {
        let life = self.lives.entry(node).or_insert_with(|| IncarnationState::new(state, node, incarnation, now));
        if life.incarnation != incarnation {
            if let Some(answered) = life.answered {
                self.earlier.insert((node, life.incarnation), (answered, life.timeout_ms));
            }
            *life = IncarnationState::new(state, node, incarnation, now);
        }
        life
    }
}

/// Returns the error for a node that is being failed: it gets no lease, and is not reported as fenced, since no row is.
fn being_failed(state: &ClusterState, node: NodeId) -> ErrorDetail {
    let message = format!("{} is being failed, which is not committed yet; try again", state.node_name(node));
    let kind = if state.breaks(Mutant::FailingIsOver) { ErrorKind::StaleIncarnation } else { ErrorKind::Unavailable };
    ErrorDetail::new(kind, message).with_retry_after_ms(50)
}
