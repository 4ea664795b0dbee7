//! A simulated cluster, in virtual time of milliseconds.

use super::coordinator::{CommandRefusal, Coordinator, PendingHeartbeats};
use super::member::{Beat, Member, Sent};
use super::network::{Network, Place};
use crate::random::Random;
use archon_member::{GrantOutcome, LeaseAnswer, RelayEffect, RelayOutcome, ReturnAddress, Rows};
use archon_types::{
    FencingProof, Incarnation, Millis, NodeId, RelayCandidate, carried_max, relay_count, relays, relays_of,
};
use std::collections::BTreeMap;

/// Size of a cluster, and its faults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Plan {
    pub(super) members: u32,
    /// Minimum number of nodes for relays; none with 0.
    pub(super) relays_from: u64,
    /// Answer time of the coordinator, the quorum round included.
    pub(super) answer_ms: u64,
    /// Probability that a message is lost.
    pub(super) loss: f64,
}

/// Counters.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    /// Messages to the coordinator.
    pub(super) messages: u64,
    /// Heartbeats in them.
    pub(super) beats: u64,
    /// Leases that ended before they were extended.
    pub(super) lapses: u64,
}

enum Event {
    Beat(u32),
    AtRelay(u32, u32, Beat),
    RelayWakes(u32),
    AtCoordinator(MessageSender, Vec<Beat>),
    Answers(MessageSender, PendingHeartbeats),
    RelayAnswered(u32, u64, Vec<LeaseAnswer>),
    Answered(u32, LeaseAnswer, Option<u64>),
    NoCoordinator(u32, u64),
    Turn,
}

/// Sender of a message to the coordinator: a member itself, or a relay, with the number of the batch.
#[derive(Clone, Copy)]
enum MessageSender {
    Member(u32),
    Relay(u32, u64),
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) members: Vec<Member>,
    pub(super) network: Network,
    pub(super) counts: Counts,
    /// Failed members, with their times.
    pub(super) failed: BTreeMap<u32, u64>,
    /// Members that the coordinator failed while their lease held. This must not happen.
    pub(super) failed_too_soon: Vec<u32>,
    coordinator: Coordinator,
    answer_ms: u64,
    numbers: BTreeMap<NodeId, u32>,
    rows: NoFencedMembers,
    events: BTreeMap<(u64, u64), Event>,
    /// Number of events so far; orders those of one instant.
    made: u64,
    random: Random,
}

/// Rows without fenced incarnations: in this simulation a failed member is unreachable.
struct NoFencedMembers(usize);

impl Rows for NoFencedMembers {
    fn members_max(&self) -> usize {
        self.0
    }

    fn over(&self, _: NodeId, _: Incarnation) -> Option<FencingProof> {
        None
    }
}

impl World {
    pub(super) fn new(plan: Plan, mut random: Random) -> Result<Self, CommandRefusal> {
        let (coordinator, incarnations) = Coordinator::new(plan.members)?;
        let live = incarnations.len();
        let candidates = incarnations.iter().map(|(node, _)| RelayCandidate { node: *node, zone: None });
        let relaying = relays(coordinator.cluster(), candidates, relay_count(live, plan.relays_from));
        let timing = coordinator.timing();
        let mut began = || Millis::new(random.below(timing.heartbeat_ms as u32).into());
        let members = incarnations.iter().map(|(node, incarnation)| {
            Member::new(*node, *incarnation, relays_of(*node, None, &relaying), timing, began())
        });
        let mut world = Self {
            now: timing.heartbeat_ms,
            members: members.collect(),
            network: Network { cut_off: 0, dead: None, loss: plan.loss },
            counts: Counts::default(),
            failed: BTreeMap::new(),
            failed_too_soon: Vec::new(),
            coordinator,
            answer_ms: plan.answer_ms,
            numbers: (0..).zip(&incarnations).map(|(number, (node, _))| (*node, number)).collect(),
            rows: NoFencedMembers(carried_max(live)),
            events: BTreeMap::new(),
            made: 0,
            random,
        };
        for member in 0..plan.members {
            let first = world.now + u64::from(world.random.below(timing.heartbeat_ms as u32));
            world.add(first, Event::Beat(member));
        }
        world.add(world.now, Event::Turn);
        Ok(world)
    }

    /// Runs until this instant.
    pub(super) fn run_until(&mut self, until: u64) {
        while let Some(next) = self.events.first_entry().filter(|next| next.key().0 <= until) {
            let ((now, _), event) = next.remove_entry();
            self.now = now;
            self.handle(event);
        }
        self.now = until;
    }

    /// Returns true if the lease of a member holds.
    pub(super) fn has_lease(&self, member: u32) -> bool {
        self.members[member as usize].grants.is_valid(Millis::new(self.now))
    }

    fn handle(&mut self, event: Event) {
        let now = Millis::new(self.now);
        match event {
            Event::Beat(member) => {
                let sent = self.members[member as usize].beat(now, &mut self.random);
                self.proceed(member, sent);
            }
            Event::NoCoordinator(member, number) => {
                let sent = self.members[member as usize].no_coordinator(number, now, &mut self.random);
                self.proceed(member, sent);
            }
            Event::Answered(member, answer, departure_ms) => {
                let taken = self.members[member as usize].answered(answer, departure_ms, now, &mut self.random);
                self.counts.lapses += u64::from(matches!(taken, GrantOutcome::Granted { lapsed_ms: 1.., .. }));
                self.proceed(member, None);
            }
            Event::AtRelay(relay, member, beat) => {
                let from = ReturnAddress { stream: member.into(), frame: beat.0.number() };
                let took = self.members[relay as usize].relay.heard(from, beat, &self.rows, now);
                if took == RelayOutcome::Waits {
                    self.no_coordinator(relay, from);
                }
                self.look_at_relay(relay);
            }
            Event::RelayWakes(relay) => {
                self.member(relay).wakes_at.take_if(|at| *at <= now.get());
                self.look_at_relay(relay);
            }
            Event::RelayAnswered(relay, batch, answers) => self.pass_back(relay, batch, answers),
            Event::AtCoordinator(from, beats) => {
                self.counts.messages += 1;
                self.counts.beats += beats.len() as u64;
                let heard = self.coordinator.hear(beats, now);
                self.add(self.now + self.answer_ms, Event::Answers(from, heard));
            }
            Event::Answers(from, heard) => self.answer(from, heard),
            Event::Turn => {
                let (failed, next) = self.coordinator.turn(now);
                for member in failed.into_iter().map(|node| self.numbers[&node]) {
                    if self.failed.contains_key(&member) {
                        continue;
                    }
                    self.failed.insert(member, self.now);
                    if self.has_lease(member) {
                        self.failed_too_soon.push(member);
                    }
                }
                self.add(next.get().max(self.now + 1), Event::Turn);
            }
        }
    }

    /// Sends a member's heartbeat, if there is one, and schedules its next action.
    fn proceed(&mut self, member: u32, sent: Option<Sent>) {
        let here = Place::Member(member);
        if let Some((beat, to)) = sent {
            match to.map(|node| self.numbers[&node]) {
                Some(relay) => self.send(here, Place::Member(relay), Event::AtRelay(relay, member, beat)),
                None => {
                    self.send(here, Place::Coordinator, Event::AtCoordinator(MessageSender::Member(member), vec![beat]))
                }
            }
        }
        if let Some(at) = self.member(member).next_beat() {
            self.add(at.get().max(self.now), Event::Beat(member));
        }
    }

    /// Sends the coordinator's answers.
    fn answer(&mut self, from: MessageSender, heard: PendingHeartbeats) {
        let answers = self.coordinator.answer(heard, Millis::new(self.now));
        match from {
            MessageSender::Relay(relay, batch) => {
                self.send(Place::Coordinator, Place::Member(relay), Event::RelayAnswered(relay, batch, answers));
            }
            MessageSender::Member(member) => {
                for answer in answers {
                    self.send(Place::Coordinator, Place::Member(member), Event::Answered(member, answer, None));
                }
            }
        }
    }

    fn pass_back(&mut self, number: u32, batch: u64, answers: Vec<LeaseAnswer>) {
        let now = Millis::new(self.now);
        let relay = &mut self.member(number).relay;
        let named = answers.iter().map(|answer| (answer.node, answer.incarnation, answer.number));
        let routes = relay.answered(batch, named);
        let departure_ms = Some(relay.next_departure_ms(now));
        for (answer, to) in answers.into_iter().zip(routes) {
            if let Some(ReturnAddress { stream, .. }) = to {
                let member = stream as u32;
                self.send(Place::Member(number), Place::Member(member), Event::Answered(member, answer, departure_ms));
            }
        }
        self.look_at_relay(number);
    }

    /// Runs the due work of a relay, and schedules the next check.
    fn look_at_relay(&mut self, number: u32) {
        let relay = &mut self.members[number as usize].relay;
        for effect in relay.due(Millis::new(self.now)) {
            match effect {
                RelayEffect::Depart { batch, beats, .. } => {
                    // Only the leading coordinator matters: the others would refuse.
                    let event = Event::AtCoordinator(MessageSender::Relay(number, batch), beats);
                    self.send(Place::Member(number), Place::Coordinator, event);
                }
                RelayEffect::NoCoordinator(to) => self.no_coordinator(number, to),
                RelayEffect::Over(..) => {}
            }
        }
        let relay = &self.members[number as usize].relay;
        if relay.carries() > 0 {
            let wake_at = relay.wake_at().get().max(self.now + 1);
            self.wake(number, wake_at);
        }
    }

    fn wake(&mut self, relay: u32, at: u64) {
        let wakes_at = &mut self.member(relay).wakes_at;
        if wakes_at.is_none_or(|already| at < already) {
            *wakes_at = Some(at);
            self.add(at, Event::RelayWakes(relay));
        }
    }

    fn no_coordinator(&mut self, relay: u32, to: ReturnAddress) {
        let member = to.stream as u32;
        self.send(Place::Member(relay), Place::Member(member), Event::NoCoordinator(member, to.frame));
    }

    fn send(&mut self, from: Place, to: Place, arrives: Event) {
        if let Some(delay) = self.network.carry(from, to, &mut self.random) {
            self.add(self.now + delay, arrives);
        }
    }

    fn add(&mut self, at: u64, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    fn member(&mut self, number: u32) -> &mut Member {
        &mut self.members[number as usize]
    }
}
