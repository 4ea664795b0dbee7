//! Relay of heartbeats for other members (PROTOCOL rules 65 to 70 and 72). A relay acts as part of the network: it
//! collects heartbeats, passes them on and returns answers, and grants nothing. It reports by itself only that no
//! coordinator answers, that it is full, and that an incarnation is fenced according to its rows.
//!
//! Every member carries heartbeats for any other one; `archon_types::relays_of` computes the relays of each.

mod kept;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

use self::kept::LastBeat;
use crate::mutant::{DisabledRule, Mutant};
use archon_types::{FencingProof, Incarnation, LeaseTiming, Millis, NodeId, PARTICIPANTS_CARRIED_MAX};
use std::collections::BTreeMap;

/// Maximum delay in milliseconds of a heartbeat that arrives between two departures.
const GATHER_MS: u64 = 10;
/// Time in milliseconds after which a coordinator without an answer counts as silent and members are notified:
/// shorter than a member's time-out for its relay, otherwise all members would ask the coordinators directly.
const OWED_MS: u64 = 50;
/// Interval in milliseconds of requests to all coordinators while none answers.
const ASK_AGAIN_MS: u64 = 30;
/// Heartbeat intervals of silence, in addition to a failure time-out, after which a member is no longer carried: a
/// failed member can still be notified until then.
const FORGOTTEN_AFTER: u64 = 5;

/// A heartbeat as seen by a relay.
pub trait RelayedHeartbeat: Clone {
    /// Returns the member.
    fn node(&self) -> NodeId;
    /// Returns its incarnation.
    fn incarnation(&self) -> Incarnation;
    /// Returns the number, which increases with each heartbeat of an incarnation.
    fn number(&self) -> u64;
}

/// Address for a member's answer: its stream, and the number of the frame on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReturnAddress {
    /// The stream.
    pub stream: u64,
    /// The frame.
    pub frame: u64,
}

/// Recipients of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchRecipients {
    /// The leading coordinator, as far as known.
    Leader,
    /// All coordinators at once, because the last leader does not answer.
    Everybody,
}

/// The rows of other members that a relay knows.
pub trait Rows {
    /// Returns the maximum number of nodes to carry for.
    fn members_max(&self) -> usize;
    /// Returns whether this is a node, otherwise a participant, which has no row at nodes. Implementations without
    /// rows treat all as nodes.
    fn is_node(&self, _member: NodeId) -> bool {
        true
    }
    /// Returns the fencing notice if this incarnation is fenced.
    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof>;
}

/// Next action of a relay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RelayEffect<B> {
    /// Send a batch of heartbeats.
    Depart {
        /// Increases with each batch.
        batch: u64,
        /// Never empty.
        beats: Vec<B>,
        /// Recipients.
        towards: BatchRecipients,
    },
    /// Notify the member that no coordinator answers. Its heartbeat is kept for the next leader.
    NoCoordinator(ReturnAddress),
    /// Notify the member that its incarnation is fenced. It is no longer carried.
    Over(ReturnAddress, FencingProof),
}

/// Outcome of a heartbeat that arrived at a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayOutcome {
    /// It leaves with the next batch.
    Leaves,
    /// It is kept for the next leader: no coordinator answers.
    Waits,
    /// Ignored: a newer one of the same member is or was here.
    Old,
    /// Refused: the relay is full.
    Busy,
    /// The incarnation is fenced by a row: the heartbeat is not passed on, and its member is notified.
    Over(FencingProof),
}

/// Heartbeats that one member carries for others. Times are those of its own clock.
#[derive(Clone, Debug)]
pub struct Relay<B> {
    heartbeat_ms: u64,
    forgotten_after_ms: u64,
    members: BTreeMap<NodeId, LastBeat<B>>,
    /// Number of the last batch.
    batches: u64,
    /// Announced departure of the next batch.
    departure: Millis,
    /// Departure of heartbeats that arrived in between, if any.
    extra: Option<Millis>,
    /// The first batch without an answer and the last batch, with their departure times.
    owed: Option<((u64, Millis), (u64, Millis))>,
    /// Time since which no coordinator answers, and time of the next request to all of them.
    silent: Option<(Millis, Millis)>,
    broken: DisabledRule,
}

impl<B: RelayedHeartbeat> Relay<B> {
    /// Creates a relay without members. A batch leaves once per heartbeat interval.
    pub fn new(timing: LeaseTiming, now: Millis) -> Self {
        let heartbeat_ms = timing.heartbeat_ms.max(1);
        let forgotten_after_ms = timing.failure_timeout_ms.saturating_add(heartbeat_ms.saturating_mul(FORGOTTEN_AFTER));
        let departure = now.plus(heartbeat_ms);
        Self {
            heartbeat_ms,
            forgotten_after_ms,
            members: BTreeMap::new(),
            batches: 0,
            departure,
            extra: None,
            owed: None,
            silent: None,
            broken: DisabledRule::default(),
        }
    }

    /// Disables a rule.
    #[must_use]
    pub const fn broken_by(mut self, broken: DisabledRule) -> Self {
        self.broken = broken;
        self
    }

    /// Returns the number of members it carries for.
    pub fn carries(&self) -> usize {
        self.members.len()
    }

    /// Returns the time since which no coordinator answers, if none does.
    pub fn silent_since(&self) -> Option<Millis> {
        self.silent.map(|(since, _)| since)
    }

    /// Returns the milliseconds until the next announced batch leaves.
    pub fn next_departure_ms(&self, now: Millis) -> u64 {
        self.departure.since(now)
    }

    /// Processes a heartbeat. New members are carried up to the limit of `rows`; fenced incarnations are not carried.
    pub fn heard(&mut self, from: ReturnAddress, beat: B, rows: &(impl Rows + ?Sized), now: Millis) -> RelayOutcome {
        let (node, life) = (beat.node(), (beat.incarnation(), beat.number()));
        if let Some(over) = rows.over(node, life.0) {
            self.members.extract_if(node..=node, |_, kept| kept.newest.0 == life.0).for_each(drop);
            return RelayOutcome::Over(over); // rule 72
        }
        let known = self.members.get(&node);
        if known.is_some_and(|kept| life <= kept.newest) && !self.broken.breaks(Mutant::OlderBeatTaken) {
            return RelayOutcome::Old; // rule 66
        }
        let is_node = known.map_or_else(|| rows.is_node(node), |kept| kept.is_node);
        if known.is_none() && !self.has_room(is_node, rows) {
            return RelayOutcome::Busy;
        }
        self.members
            .insert(node, LastBeat { from, newest: life, arrived: now, beat: Some(beat), is_sent: false, is_node });
        if self.silent.is_some() {
            return RelayOutcome::Waits;
        }
        let soon = now.plus(GATHER_MS);
        if self.departure > soon {
            self.extra.get_or_insert(soon);
        }
        RelayOutcome::Leaves
    }

    /// Returns whether there is room for one more member. Participants are unlimited in number and take no place of a
    /// node (rule 81).
    fn has_room(&self, is_node: bool, rows: &(impl Rows + ?Sized)) -> bool {
        if self.broken.breaks(Mutant::ParticipantsCrowdOut) {
            return self.members.len() < rows.members_max();
        }
        let carried = self.members.values().filter(|kept| kept.is_node == is_node).count();
        carried < if is_node { rows.members_max() } else { PARTICIPANTS_CARRIED_MAX }
    }

    /// Processes new rows of nodes: members with a fenced incarnation are notified at once and no longer carried.
    pub fn rows_changed(&mut self, rows: &(impl Rows + ?Sized)) -> Vec<RelayEffect<B>> {
        let mut told = Vec::new();
        if self.broken.breaks(Mutant::OverUntold) {
            return told; // rule 72
        }
        self.members.retain(|node, kept| {
            let over = rows.over(*node, kept.newest.0);
            told.extend(over.map(|over| RelayEffect::Over(kept.from, over)));
            // The member's row may have come after its first heartbeat.
            kept.is_node = rows.is_node(*node);
            over.is_none()
        });
        told
    }

    /// Handles the end of a stream: its members are no longer carried.
    pub fn ended(&mut self, stream: u64) {
        self.members.retain(|_, kept| kept.from.stream != stream);
    }

    /// Returns the latest time for the next call of [`due`](Self::due).
    pub fn wake_at(&self) -> Millis {
        let owed = self.owed.map(|((_, left), _)| left.plus(OWED_MS));
        let asked_again = self.silent.map(|(_, again)| again);
        let leaves = if asked_again.is_some() { [None, None, asked_again] } else { [self.extra, owed, None] };
        leaves.into_iter().flatten().fold(self.departure, Millis::min)
    }

    /// Returns the actions that are due.
    pub fn due(&mut self, now: Millis) -> Vec<RelayEffect<B>> {
        if self.silent.is_none() && self.owed.is_some_and(|((_, left), _)| left.plus(OWED_MS) <= now) {
            return self.falls_silent(now);
        }
        let regular = self.departure <= now;
        if regular {
            let missed = now.since(self.departure) / self.heartbeat_ms;
            self.departure = self.departure.plus((missed + 1).saturating_mul(self.heartbeat_ms));
            self.forget(now);
        }
        match self.silent {
            Some((since, again)) if again <= now => {
                self.silent = Some((since, now.plus(ASK_AGAIN_MS)));
                self.depart(BatchRecipients::Everybody, now).into_iter().collect()
            }
            Some(_) => Vec::new(),
            None if regular || self.extra.is_some_and(|extra| extra <= now) => {
                self.extra = None;
                self.depart(BatchRecipients::Leader, now).into_iter().collect()
            }
            None => Vec::new(),
        }
    }

    /// Processes the answers to a batch: this coordinator leads. Returns the address for each answer, in order: only
    /// the member that it names receives it.
    pub fn answered(
        &mut self,
        batch: u64,
        answers: impl IntoIterator<Item = (NodeId, Incarnation, u64)>,
    ) -> Vec<Option<ReturnAddress>> {
        self.silent = None;
        self.owed = self.owed.and_then(|(first, last)| match batch {
            batch if batch >= last.0 => None,
            batch if batch >= first.0 => Some((last, last)),
            _ => Some((first, last)),
        });
        let old_counts = self.broken.breaks(Mutant::OldBeatPassedOn);
        let mixed_up = self.broken.breaks(Mutant::AnswerToAnotherLife);
        let route = |(node, incarnation, number)| {
            let kept = self.members.get_mut(&node).filter(|kept| kept.newest.0 == incarnation || mixed_up)?; // rule 65
            if kept.newest.1 == number && !old_counts {
                kept.beat = None;
            }
            Some(kept.from)
        };
        answers.into_iter().map(route).collect()
    }

    /// Handles a refused batch: its recipient does not lead or is unreachable.
    pub fn refused(&mut self, batch: u64, now: Millis) -> Vec<RelayEffect<B>> {
        let is_owed = self.owed.is_some_and(|((first, _), _)| batch >= first);
        if self.silent.is_none() && is_owed { self.falls_silent(now) } else { Vec::new() }
    }

    /// Handles a silent leader: members are notified, and all coordinators are asked.
    fn falls_silent(&mut self, now: Millis) -> Vec<RelayEffect<B>> {
        self.silent = Some((now, now.plus(ASK_AGAIN_MS)));
        self.owed = None;
        self.extra = None;
        let waits = self.members.values().filter(|kept| kept.beat.is_some());
        let told: Vec<_> = waits.map(|kept| RelayEffect::NoCoordinator(kept.from)).collect();
        let told = if self.broken.breaks(Mutant::SilenceUntold) { Vec::new() } else { told }; // rule 68
        if self.broken.breaks(Mutant::BeatsNotKept) {
            self.members.values_mut().for_each(|kept| kept.beat = None); // rule 68
        }
        self.depart(BatchRecipients::Everybody, now).into_iter().chain(told).collect()
    }

    /// Sends heartbeats: those that were not sent yet, or all without an answer. Drops those older than an interval:
    /// an old sign of life is none.
    fn depart(&mut self, towards: BatchRecipients, now: Millis) -> Option<RelayEffect<B>> {
        let old_counts = self.broken.breaks(Mutant::OldBeatPassedOn); // rule 66
        let mut beats = Vec::new();
        for kept in self.members.values_mut() {
            if now.since(kept.arrived) > self.heartbeat_ms && !old_counts {
                kept.beat = None;
            }
            let again = towards == BatchRecipients::Everybody || old_counts;
            if let Some(beat) = kept.beat.as_ref().filter(|_| again || !kept.is_sent) {
                kept.is_sent = true;
                beats.push(beat.clone());
            }
        }
        if beats.is_empty() {
            return None;
        }
        self.batches += 1;
        if towards == BatchRecipients::Leader {
            let left = (self.batches, now);
            self.owed = Some(self.owed.map_or((left, left), |(first, _)| (first, left)));
        }
        Some(RelayEffect::Depart { batch: self.batches, beats, towards })
    }

    fn forget(&mut self, now: Millis) {
        self.members.retain(|_, kept| now.since(kept.arrived) <= self.forgotten_after_ms);
    }
}
