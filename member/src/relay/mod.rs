//! Heartbeats that a member carries for others (PROTOCOL rules 65 to 70 and 72). A relay is network: it gathers, passes on and brings
//! back, and grants nothing. Of its own it says only that no coordinator answers it, that it carries for enough, and that a life is
//! over whose end it was told of.
//!
//! Every member does this for whoever asks; who asks whom is computed in `archon_types::relays_of`.

mod kept;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

use self::kept::Kept;
use crate::mutant::{Broken, Mutant};
use archon_types::{Incarnation, LeaseTiming, Millis, NodeId, Over, PARTICIPANTS_CARRIED_MAX};
use std::collections::BTreeMap;

/// What comes between two departures leaves within this, in milliseconds.
const GATHER_MS: u64 = 10;
/// For so long a coordinator may owe an answer before members are told that none answers, in milliseconds: sooner than a member gives
/// its relay up, or all of them would ask for themselves.
const OWED_MS: u64 = 50;
/// How often coordinators are asked while none answers, in milliseconds.
const ASK_AGAIN_MS: u64 = 30;
/// Who was not heard for so many heartbeat intervals, and for a failure time-out before, is carried no more: whoever is failed can still be
/// told so.
const FORGOTTEN_AFTER: u64 = 5;

/// A heartbeat as a relay sees it.
pub trait Carried: Clone {
    /// Who lives.
    fn node(&self) -> NodeId;
    /// In which life.
    fn incarnation(&self) -> Incarnation;
    /// Its number; it rises with each heartbeat of a life.
    fn number(&self) -> u64;
}

/// Where a member waits for the answer: its stream, and the number of its frame there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReturnAddress {
    /// The stream.
    pub stream: u64,
    /// The frame.
    pub frame: u64,
}

/// Who is to have a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Towards {
    /// The coordinator that leads, as far as is known.
    Leader,
    /// All of them at once: the one that led does not answer.
    Everybody,
}

/// What a relay knows of the cluster, by the rows that were told to its node.
pub trait Rows {
    /// For how many nodes it carries at most.
    fn members_max(&self) -> usize;
    /// Whether this is a node; else it is a participant, of which nodes hold no rows. Whoever holds none at all tells nobody apart.
    fn is_node(&self, _member: NodeId) -> bool {
        true
    }
    /// Whether this life is over.
    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over>;
}

/// What a relay does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RelayEffect<B> {
    /// Heartbeats leave together.
    Depart {
        /// Rises with each batch.
        batch: u64,
        /// At least one.
        beats: Vec<B>,
        /// Whom they go to.
        towards: Towards,
    },
    /// The member hears that no coordinator answers. Its heartbeat is kept, and goes to whoever leads next.
    NoCoordinator(ReturnAddress),
    /// The member hears that its life is over. It is carried no more.
    Over(ReturnAddress, Over),
}

/// What became of a heartbeat that came to a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Took {
    /// It leaves with the next batch.
    Leaves,
    /// It is kept for whoever leads next: no coordinator answers.
    Waits,
    /// A newer one of the same member is here, or was: it counts for nothing.
    Old,
    /// Others are carried, and no more than those.
    Busy,
    /// That life is over, by a row that is held here: it is not passed on, and its member hears so.
    Over(Over),
}

/// The heartbeats that one member carries for others. All times are its own clock's.
#[derive(Clone, Debug)]
pub struct Relay<B> {
    heartbeat_ms: u64,
    forgotten_after_ms: u64,
    members: BTreeMap<NodeId, Kept<B>>,
    /// The number of the last batch.
    batches: u64,
    /// When the next batch leaves, as members were told.
    departure: Millis,
    /// When what came between leaves, if anything did.
    extra: Option<Millis>,
    /// The first batch that was not answered, and the last one, with when they left.
    owed: Option<((u64, Millis), (u64, Millis))>,
    /// Since when no coordinator answers, and when they are asked again.
    silent: Option<(Millis, Millis)>,
    broken: Broken,
}

impl<B: Carried> Relay<B> {
    /// It carries for nobody yet. Batches leave once in a heartbeat interval.
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
            broken: Broken::default(),
        }
    }

    /// With a rule taken away.
    #[must_use]
    pub const fn broken_by(mut self, broken: Broken) -> Self {
        self.broken = broken;
        self
    }

    /// For how many members it carries.
    pub fn carries(&self) -> usize {
        self.members.len()
    }

    /// Since when no coordinator answers, if none does.
    pub fn silent_since(&self) -> Option<Millis> {
        self.silent.map(|(since, _)| since)
    }

    /// In how many milliseconds the next batch leaves that members are told of.
    pub fn next_departure_ms(&self, now: Millis) -> u64 {
        self.departure.since(now)
    }

    /// A heartbeat came. It carries for as many as `rows` say, and for whoever it carries already; for no life that they have ended.
    pub fn heard(&mut self, from: ReturnAddress, beat: B, rows: &(impl Rows + ?Sized), now: Millis) -> Took {
        let (node, life) = (beat.node(), (beat.incarnation(), beat.number()));
        if let Some(over) = rows.over(node, life.0) {
            self.members.extract_if(node..=node, |_, kept| kept.newest.0 == life.0).for_each(drop);
            return Took::Over(over); // rule 72
        }
        let known = self.members.get(&node);
        if known.is_some_and(|kept| life <= kept.newest) && !self.broken.breaks(Mutant::OlderBeatTaken) {
            return Took::Old; // rule 66
        }
        let is_node = known.map_or_else(|| rows.is_node(node), |kept| kept.is_node);
        if known.is_none() && !self.has_room(is_node, rows) {
            return Took::Busy;
        }
        self.members.insert(node, Kept { from, newest: life, came: now, beat: Some(beat), departed: false, is_node });
        if self.silent.is_some() {
            return Took::Waits;
        }
        let soon = now.plus(GATHER_MS);
        if self.departure > soon {
            self.extra.get_or_insert(soon);
        }
        Took::Leaves
    }

    /// Whether it carries for one more. Participants take no node's place (rule 81): there may be any number of them.
    fn has_room(&self, is_node: bool, rows: &(impl Rows + ?Sized)) -> bool {
        if self.broken.breaks(Mutant::ParticipantsCrowdOut) {
            return self.members.len() < rows.members_max();
        }
        let carried = self.members.values().filter(|kept| kept.is_node == is_node).count();
        carried < if is_node { rows.members_max() } else { PARTICIPANTS_CARRIED_MAX }
    }

    /// Rows of nodes came: whoever is carried in a life that they have ended hears so at once, and is carried no more.
    pub fn rows_changed(&mut self, rows: &(impl Rows + ?Sized)) -> Vec<RelayEffect<B>> {
        let mut told = Vec::new();
        if self.broken.breaks(Mutant::OverUntold) {
            return told; // rule 72
        }
        self.members.retain(|node, kept| {
            let over = rows.over(*node, kept.newest.0);
            told.extend(over.map(|over| RelayEffect::Over(kept.from, over)));
            // Its row may have come after its first heartbeat.
            kept.is_node = rows.is_node(*node);
            over.is_none()
        });
        told
    }

    /// A stream ended: whoever came by it is carried no more.
    pub fn ended(&mut self, stream: u64) {
        self.members.retain(|_, kept| kept.from.stream != stream);
    }

    /// When [`due`](Self::due) has something to do, at the latest.
    pub fn wake_at(&self) -> Millis {
        let owed = self.owed.map(|((_, left), _)| left.plus(OWED_MS));
        let asked_again = self.silent.map(|(_, again)| again);
        let leaves = if asked_again.is_some() { [None, None, asked_again] } else { [self.extra, owed, None] };
        leaves.into_iter().flatten().fold(self.departure, Millis::min)
    }

    /// What the time that has passed makes due.
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
                self.depart(Towards::Everybody, now).into_iter().collect()
            }
            Some(_) => Vec::new(),
            None if regular || self.extra.is_some_and(|extra| extra <= now) => {
                self.extra = None;
                self.depart(Towards::Leader, now).into_iter().collect()
            }
            None => Vec::new(),
        }
    }

    /// A coordinator granted or refused heartbeats of a batch one by one, so it leads. Returns where each answer goes, in their
    /// order: to the member that it names and to nobody else.
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

    /// Whoever was asked does not lead, or cannot be reached.
    pub fn refused(&mut self, batch: u64, now: Millis) -> Vec<RelayEffect<B>> {
        let is_owed = self.owed.is_some_and(|((first, _), _)| batch >= first);
        if self.silent.is_none() && is_owed { self.falls_silent(now) } else { Vec::new() }
    }

    /// The coordinator that led does not answer: members hear so, and all coordinators are asked.
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
        self.depart(Towards::Everybody, now).into_iter().chain(told).collect()
    }

    /// Heartbeats leave: those that have not left yet, or all that were not answered. None that is older than an interval: an old
    /// sign of life is none.
    fn depart(&mut self, towards: Towards, now: Millis) -> Option<RelayEffect<B>> {
        let old_counts = self.broken.breaks(Mutant::OldBeatPassedOn); // rule 66
        let mut beats = Vec::new();
        for kept in self.members.values_mut() {
            if now.since(kept.came) > self.heartbeat_ms && !old_counts {
                kept.beat = None;
            }
            let again = towards == Towards::Everybody || old_counts;
            if let Some(beat) = kept.beat.as_ref().filter(|_| again || !kept.departed) {
                kept.departed = true;
                beats.push(beat.clone());
            }
        }
        if beats.is_empty() {
            return None;
        }
        self.batches += 1;
        if towards == Towards::Leader {
            let left = (self.batches, now);
            self.owed = Some(self.owed.map_or((left, left), |(first, _)| (first, left)));
        }
        Some(RelayEffect::Depart { batch: self.batches, beats, towards })
    }

    fn forget(&mut self, now: Millis) {
        self.members.retain(|_, kept| now.since(kept.came) <= self.forgotten_after_ms);
    }
}
