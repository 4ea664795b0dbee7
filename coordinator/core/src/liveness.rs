//! What the leading coordinator remembers of the nodes' lives, in memory only: when it last heard each, when it last
//! extended its lease, and which leaderships it has withdrawn. A new leader starts afresh (PROTOCOL rules 13 to 16).
//!
//! All instants are on this coordinator's own monotone clock.

use crate::automatic_merges::AutomaticMerges;
use crate::automatic_splits::AutomaticSplits;
use crate::countdowns::Countdowns;
use crate::doors::Doors;
use crate::former_leaders::FormerLeader;
use crate::isolated_leaders::IsolatedLeaders;
use crate::leases::Churn;
use crate::merges::Merges;
use crate::mutant::Mutant;
use crate::splits::Splits;
use crate::state::ClusterState;
use crate::unserved::Unserved;
use crate::withdrawals::{Withdrawals, Withdrawn};
use archon_types::{Epoch, ErrorDetail, ErrorKind, Incarnation, Millis, NodeId, NodeStatus, PartitionId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// How long an edit that had no effect yet is not proposed again for the same row version, in milliseconds.
const REPEAT_MS: u64 = 1_000;

/// What a heartbeat is answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatAnswer {
    /// How long the node may serve, counted from when it sent the heartbeat.
    pub lease_ms: u64,
    /// Leaderships of this life that the lease does not cover. The node stops serving them for good and reports
    /// `Released`.
    pub withdrawn: Vec<(PartitionId, Epoch)>,
    /// How long a follower may leave its leader without an answer, as the settings say now.
    pub replication_timeout_ms: u64,
}

/// One node's present life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Life {
    incarnation: Incarnation,
    /// The highest number of its heartbeats; zero before the first.
    number: u64,
    /// When it was heard last, or first known of.
    heard: Millis,
    /// When its lease was extended last.
    answered: Option<Millis>,
    /// When its failure was proposed: since then it gets no answer (rule 15).
    failing: Option<Millis>,
    /// Proposals of its failure that Raft was handed, or is about to be.
    failures_proposed: u32,
    /// It said that it is about to exit: it is granted nothing any more.
    stopping: bool,
    /// Its failure time-out, in milliseconds.
    timeout_ms: u64,
}

impl Life {
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

/// The leader's memory of lives and leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Liveness {
    became_leader_at: Millis,
    lives: BTreeMap<NodeId, Life>,
    /// The last answers to lives that were replaced, each kept for that life's failure time-out, in milliseconds.
    earlier: BTreeMap<(NodeId, Incarnation), (Millis, u64)>,
    /// Leaderships that no lease covers any more.
    withdrawals: Withdrawals,
    /// Since when each leader has been asked to hand over.
    pub(crate) hand_overs: BTreeMap<PartitionId, (Epoch, Millis)>,
    /// For which version of each row an edit was proposed, and when.
    proposed: BTreeMap<PartitionId, (Version, Millis)>,
    /// The highest placement number handed out, which may not be in the state yet.
    pub(crate) placement_last: u64,
    /// The applied index and the next instant for which the last full pass was made.
    pub(crate) passed: Option<(u64, Millis)>,
    /// Leaders that hear too few followers (rule 6).
    pub(crate) isolated: IsolatedLeaders,
    /// Nodes that clients do not reach (rules 74 to 76).
    pub(crate) doors: Doors,
    /// Since when each failed node is known to be one.
    failed_since: BTreeMap<NodeId, Millis>,
    /// Every node that is being failed or about to exit is among these.
    excluded: BTreeSet<NodeId>,
    /// Up to which version of the rows of nodes and participants their lives are noted here.
    synced: (Version, Version),
    /// Participants that came, went or gave something up.
    pub(crate) churn: Churn,
    /// Since when partitions are not served.
    pub(crate) unserved: Unserved,
    /// Splits under way.
    pub(crate) splits: Splits,
    /// Splits that begin by themselves.
    pub(crate) automatic_splits: AutomaticSplits,
    /// Merges that do.
    pub(crate) automatic_merges: AutomaticMerges,
    pub(crate) merges: Merges,
    /// Time left of orders that end by themselves.
    pub(crate) countdowns: Countdowns,
    /// How far the wall clock is ahead of this coordinator's own.
    wall_ahead_ms: u64,
    /// Before this nobody's time is up, by the failure time-out that it was reckoned with.
    nobody_fails_before: Option<(Millis, u64)>,
}

impl Liveness {
    /// The memory of a coordinator that begins to lead at `now`.
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
            doors: Doors::default(),
            failed_since: BTreeMap::new(),
            excluded: BTreeSet::new(),
            synced: (Version::ZERO, Version::ZERO),
            churn: Churn::new(now),
            unserved: Unserved::default(),
            splits: Splits::default(),
            automatic_splits: AutomaticSplits::default(),
            automatic_merges: AutomaticMerges::default(),
            merges: Merges::default(),
            countdowns: Countdowns::default(),
            wall_ahead_ms: 0,
            nobody_fails_before: None,
        }
    }

    /// Restarts the timers that count silence, after a time in which nothing could be heard.
    pub(crate) fn resume(&mut self, now: Millis) {
        self.became_leader_at = now;
        self.nobody_fails_before = None;
        self.hand_overs.clear();
        self.passed = None;
    }

    /// The wall clock shows `wall` now. Nothing ends by it: it dates what people are shown.
    pub const fn set_wall(&mut self, now: Millis, wall: Millis) {
        self.wall_ahead_ms = wall.since(now);
    }

    /// What the wall clock shows.
    pub(crate) const fn wall(&self, now: Millis) -> Millis {
        now.plus(self.wall_ahead_ms)
    }

    /// When this coordinator began to lead, or its present session began.
    pub const fn became_leader_at(&self) -> Millis {
        self.became_leader_at
    }

    /// Takes note of lives that began or ended in the state.
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
                let life = Life::new(state, row.id, row.incarnation, now);
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

    /// A heartbeat arrived, the life's `number`th. Returns whether it is a sign of life: one that repeats what was heard, or that a
    /// later one has overtaken, says nothing of the present and is not answered (rule 56).
    ///
    /// # Errors
    /// `StaleIncarnation` when this life is over: the node should register again. `Unavailable` (retryable) when its registration is not
    /// applied here yet, or when it is being failed: whether that is committed is not known yet, and a coordinator that was paused, and
    /// leads no more, takes everybody for silent.
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

    /// The answer to a heartbeat, to be asked for after a quorum round that began after its arrival confirmed that this
    /// coordinator leads, and sent at once. Everything is judged as it is now, nothing as it was when the heartbeat arrived
    /// (rule 54), and that it is given is noted before it leaves (rule 55).
    ///
    /// # Errors
    /// As [`heard`](Self::heard): no lease is given.
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

    /// What the answer would be. It is given by [`answer`](Self::answer) alone.
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

    /// From now on no lease covers the present leadership of `partition`. Returns whether there is one to withdraw.
    pub fn withdraw(&mut self, state: &ClusterState, partition: PartitionId) -> bool {
        let Some(row) = state.partitions.get(partition) else { return false };
        let Some(leader) = row.leader_placement() else { return false };
        let Some(incarnation) = state.incarnation(leader.node) else { return false };
        let same = |held: &Withdrawn| held.epoch == row.epoch && held.incarnation == incarnation;
        if !self.withdrawals.get(partition).is_some_and(same) {
            let answered = self.last_answer(state, leader.node, incarnation);
            let withdrawn = Withdrawn { epoch: row.epoch, node: leader.node, incarnation, answered };
            self.withdrawals.insert(partition, withdrawn);
            self.passed = None;
        }
        true
    }

    /// The partitions whose present leadership is withdrawn.
    pub fn withdrawn(&self) -> impl Iterator<Item = (PartitionId, Epoch)> + use<'_> {
        self.withdrawals.iter()
    }

    /// A node said that it is about to exit. Until it begins another life it is granted no leadership: it would only
    /// release it again, and again, until its time-out.
    /// Returns whether that is news, upon which a turn is due.
    pub fn note_stopping(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let life = self.lives.get_mut(&node).filter(|life| life.incarnation == incarnation && !life.stopping);
        let Some(life) = life else { return false };
        life.stopping = true;
        self.excluded.insert(node);
        self.passed = None;
        true
    }

    /// The nodes that are about to exit.
    pub(crate) fn stopping(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.excluded.iter().copied().filter(|node| self.lives.get(node).is_some_and(|life| life.stopping))
    }

    /// When the next failed node has been one for `replace_after_ms`.
    pub(crate) fn replace_due(&self, replace_after_ms: u64, now: Millis) -> Option<Millis> {
        self.failed_since.values().map(|since| since.plus(replace_after_ms)).filter(|due| *due > now).min()
    }

    /// The nodes that may not be given a leadership.
    pub(crate) fn excluded(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.excluded.iter().copied().filter(|node| !self.may_lead(*node))
    }

    /// When the lease of this member was extended last, by this coordinator.
    pub(crate) fn extended(&self, member: NodeId) -> Option<Millis> {
        self.lives.get(&member).and_then(|life| life.answered)
    }

    /// Whether the node may be given a leadership: it is neither being failed nor about to exit.
    pub(crate) fn may_lead(&self, node: NodeId) -> bool {
        self.lives.get(&node).is_none_or(|life| life.failing.is_none() && !life.stopping)
    }

    /// From when on no lease can cover this former leadership (rule 16).
    pub fn former_over_at(&self, state: &ClusterState, former: &FormerLeader) -> Millis {
        if former.lapsed {
            return Millis::ZERO;
        }
        self.over_at(state, former.failure_timeout_ms, self.last_answer(state, former.node, former.incarnation))
    }

    /// From when on no lease is left that an earlier coordinator granted, to whomever.
    pub(crate) fn earlier_leases_over_at(&self, state: &ClusterState) -> Millis {
        let timeouts = state.members().map(|row| state.timing_of(row.node.id).failure_timeout_ms);
        let longest_ms = timeouts.max().unwrap_or(0).max(state.settings.timing.failure_timeout_ms);
        self.over_at(state, longest_ms, None)
    }

    /// From when on no lease can cover the present leadership of a partition; `None` if it is not withdrawn.
    pub(crate) fn withdrawn_over_at(&self, state: &ClusterState, partition: PartitionId) -> Option<Millis> {
        let withdrawn = self.withdrawals.get(partition)?;
        let row = state.partitions.get(partition)?;
        let present = row.epoch == withdrawn.epoch && state.incarnation(withdrawn.node) == Some(withdrawn.incarnation);
        let timeout_ms = state.timing_of(withdrawn.node).failure_timeout_ms;
        present.then(|| self.over_at(state, timeout_ms, withdrawn.answered))
    }

    /// From when on the node's life counts as over if nothing more is heard of it.
    pub(crate) fn fails_at(&self, state: &ClusterState, node: NodeId) -> Option<Millis> {
        let life = self.lives.get(&node)?;
        let answered = life.answered.filter(|_| !state.breaks(Mutant::FailFromHeard)); // rule 16
        let timeout_ms = state.timing_of(node).failure_timeout_ms;
        Some(self.over_at(state, timeout_ms, Some(answered.unwrap_or_default().max(life.heard))))
    }

    /// The lives whose time may be up. Looking through all of them is needed only once in a while: whoever is heard gets
    /// more time, never less.
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

    /// The failed nodes that have been so for this long.
    pub(crate) fn failed_for(&self, millis: u64, now: Millis) -> impl Iterator<Item = NodeId> + use<'_> {
        self.failed_since.iter().filter(move |(_, since)| now.since(**since) >= millis).map(|(node, _)| *node)
    }

    /// Stops answering a life whose failure is proposed. Returns whether to propose it now: not again within a second.
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

    /// Raft was never handed a failure of this life. If no other proposal of it is under way, the life is answered again.
    pub(crate) fn retract_failure(&mut self, node: NodeId, incarnation: Incarnation) {
        let Some(life) = self.lives.get_mut(&node).filter(|life| life.incarnation == incarnation) else { return };
        life.failures_proposed = life.failures_proposed.saturating_sub(1);
        if life.failures_proposed == 0 {
            life.failing = None;
        }
    }

    /// Whether an edit of this row version may be proposed now, or was only just.
    pub(crate) fn may_propose(&self, partition: PartitionId, version: Version, now: Millis) -> bool {
        self.proposed.get(&partition).is_none_or(|(at, when)| *at != version || now.since(*when) >= REPEAT_MS)
    }

    /// Takes note that an edit of this row version is proposed.
    pub(crate) fn note_proposed(&mut self, partition: PartitionId, version: Version, now: Millis) {
        self.proposed.insert(partition, (version, now));
    }

    /// When the next proposal may be repeated, if one is outstanding.
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

    /// The life in memory; one that the state has just begun is entered.
    fn life(&mut self, state: &ClusterState, node: NodeId, incarnation: Incarnation, now: Millis) -> &mut Life {
        let life = self.lives.entry(node).or_insert_with(|| Life::new(state, node, incarnation, now));
        if life.incarnation != incarnation {
            if let Some(answered) = life.answered {
                self.earlier.insert((node, life.incarnation), (answered, life.timeout_ms));
            }
            *life = Life::new(state, node, incarnation, now);
        }
        life
    }
}

/// It is not granted a lease, and not told that its life is over: no row says so yet.
fn being_failed(state: &ClusterState, node: NodeId) -> ErrorDetail {
    let message = format!("{} is being failed, which is not committed yet; try again", state.node_name(node));
    let kind = if state.breaks(Mutant::FailingIsOver) { ErrorKind::StaleIncarnation } else { ErrorKind::Unavailable };
    ErrorDetail::new(kind, message).with_retry_after_ms(50)
}
