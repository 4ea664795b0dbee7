//! Relaying of a machine, and its knowledge of the nodes: the product's relay with the world's batches, streams and
//! clocks.

use crate::check::violation::Violation;
use crate::event::{BatchId, ClusterNow, Event, HeartbeatAnswer, MemberMessage, PeerMessage};
use crate::host::carried::{CarriedBeat, CarriedRows, MACHINES, RelayMessage};
use crate::mutant::ShellMutant;
use crate::network::End;
use crate::world::World;
use archon_host::NodeRegistration;
use archon_member::{BatchRecipients, RelayEffect, RelayOutcome, ReturnAddress};
use archon_replica::Message;

/// Heartbeats that wait while a process has no incarnation in which to carry them.
const WAITING_MAX: usize = 64;

impl World {
    /// Runs the due work of a relay.
    pub(super) fn keep_relaying(&mut self, host: usize) {
        let now = self.local(host);
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| self.plan.relays) else { return };
        let Some(relay) = &mut process.relaying.relay else { return };
        let effects = relay.due(now);
        let waiting = std::mem::take(&mut process.relaying.waiting);
        for (from, beat) in waiting {
            self.carry_beat(host, from, beat);
        }
        self.perform(host, effects);
    }

    pub(super) fn perform(&mut self, host: usize, effects: Vec<RelayEffect<CarriedBeat>>) {
        for effect in effects {
            match effect {
                RelayEffect::Depart { batch, beats, towards } => self.depart(host, batch, beats, towards),
                RelayEffect::NoCoordinator(to) => self.say_no_coordinator(host, to),
                RelayEffect::Over(to, over) => self.tell_member(host, to, RelayMessage::Over(over)),
            }
        }
    }

    fn depart(&mut self, host: usize, number: u64, beats: Vec<CarriedBeat>, towards: BatchRecipients) {
        let now = self.local(host);
        let Some(NodeRegistration { incarnation, .. }) = self.life(host) else { return };
        self.coverage.batches_carried += 1;
        self.coverage.beats_carried += beats.len() as u64;
        let heartbeat_ms = self.plan.unit_ms();
        if let Some(old) = beats.iter().find(|beat| now.since(beat.came) > heartbeat_ms) {
            let (beat, age) = (old.heartbeat, now.since(old.came));
            let detail = format!("host {host} passes on {beat:?} as a sign of life, which came {age} ms ago");
            return self.judge(Err(Violation::Relayed { detail }));
        }
        let batch = BatchId { relay: incarnation, number };
        let Some(guess) = self.hosts[host].process.as_ref().map(|process| process.guess) else { return };
        self.send_up(host, guess, towards == BatchRecipients::Everybody, &MemberMessage::Beats { batch, beats });
    }

    /// Relays a member's heartbeat.
    pub(super) fn carry_beat(&mut self, host: usize, from: ReturnAddress, beat: CarriedBeat) {
        let (now, lease_ms) = (self.local(host), self.plan.settings.timing.lease_ms);
        let alone = self.breaks(ShellMutant::RelayAnswersAlone);
        let Some(process) = &mut self.hosts[host].process else { return };
        let relaying = &mut process.relaying;
        let Some(relay) = &mut relaying.relay else {
            if relaying.waiting.len() < WAITING_MAX {
                relaying.waiting.push((from, beat));
            }
            return;
        };
        let (heartbeat, came) = (beat.heartbeat, beat.came);
        let rows = CarriedRows { rows: &relaying.rows, few: relaying.few };
        match relay.heard(from, beat, &rows, came) {
            RelayOutcome::Leaves | RelayOutcome::Old => {}
            RelayOutcome::Over(over) => self.tell_member(host, from, RelayMessage::Over(over)),
            RelayOutcome::Waits if alone => {
                let (lease, departure_ms) =
                    (Some(heartbeat.answer(lease_ms, Vec::new())), relay.next_departure_ms(now));
                let cluster = ClusterNow { relays: relaying.count, door_every_ms: process.prober.every_ms() };
                self.tell_member(
                    host,
                    from,
                    RelayMessage::Answer { heartbeat, lease, news: None, departure_ms, cluster },
                );
            }
            RelayOutcome::Waits => self.say_no_coordinator(host, from),
            RelayOutcome::Busy => {
                self.coverage.relays_busy += 1;
                self.tell_member(host, from, RelayMessage::Busy);
            }
        }
    }

    /// Handles a coordinator's answer to a batch of this incarnation.
    pub(super) fn pass_back(
        &mut self,
        host: usize,
        by: usize,
        batch: BatchId,
        answers: Vec<HeartbeatAnswer>,
        cluster: ClusterNow,
    ) {
        let now = self.local(host);
        if !self.lives(host, batch.relay) {
            return;
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(relay) = &mut process.relaying.relay else { return };
        process.guess = by;
        let named = answers.iter().map(|(beat, ..)| (beat.node(), beat.incarnation(), beat.number()));
        let routes = relay.answered(batch.number, named);
        let departure_ms = relay.next_departure_ms(now);
        for ((heartbeat, lease, news), to) in answers.into_iter().zip(routes) {
            let Some(to) = to else { continue };
            self.coverage.answers_routed += 1;
            self.tell_member(host, to, RelayMessage::Answer { heartbeat, lease, news, departure_ms, cluster });
        }
    }

    /// Handles a refusal of a batch of this incarnation: its receiver does not lead.
    pub(super) fn batch_refused(&mut self, host: usize, batch: BatchId, leader: Option<usize>) {
        let now = self.local(host);
        let Some(guess) = self.hosts[host].process.as_ref().map(|process| process.guess) else { return };
        let guess = self.next_guess(host, guess, leader);
        let lives = self.lives(host, batch.relay);
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| lives) else { return };
        process.guess = guess;
        let Some(relay) = &mut process.relaying.relay else { return };
        let effects = relay.refused(batch.number, now);
        self.perform(host, effects);
    }

    fn say_no_coordinator(&mut self, host: usize, to: ReturnAddress) {
        self.coverage.no_coordinator_told += 1;
        self.tell_member(host, to, RelayMessage::NoCoordinator);
    }

    fn tell_member(&mut self, host: usize, to: ReturnAddress, said: RelayMessage) {
        let Ok(member) = usize::try_from(to.stream % MACHINES) else { return };
        self.pass_to_peer(host, member, PeerMessage::Relayed { to, said });
    }

    /// Sends a message to another machine, or back to this one.
    pub(super) fn pass_to_peer(&mut self, host: usize, other: usize, message: PeerMessage) {
        let event = Event::PeerMessage { host: other, message: Box::new(message), sent: self.truth };
        if other == host {
            return self.after(1, event);
        }
        self.send(End::Host(host), End::Host(other), event);
    }

    /// Notifies the sender of a fenced incarnation, by a row held here, and ignores its message.
    pub(super) fn says_over(&mut self, host: usize, message: &Message) -> bool {
        if !self.plan.relays {
            return false;
        }
        let from = NodeRegistration { node: message.from.node, incarnation: message.from.incarnation };
        let Some(process) = &self.hosts[host].process else { return false };
        let Some(over) = process.relaying.rows.over(from.node, from.incarnation) else { return false };
        // On the stream by which it came.
        let sender = (0..self.hosts.len()).find(|other| self.life(*other).is_some_and(|life| life.node == from.node));
        if let Some(sender) = sender {
            self.pass_to_peer(host, sender, PeerMessage::Over(over));
        }
        true
    }
}
