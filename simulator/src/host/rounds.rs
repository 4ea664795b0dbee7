//! A member's heartbeats where some relay: by one way after the other, until one is answered (rule 67).

use super::relaying::{Said, stream};
use crate::check::Violation;
use crate::coordinator::host_of;
use crate::event::{Event, MemberMessage, PeerMessage};
use crate::mutant::ShellMutant;
use crate::network::End;
use crate::world::World;
use archon_host::Life;
use archon_member::{ASKS_FOR_ITSELF, COORDINATOR_ANSWER_MS, RELAY_ANSWER_MS, ReturnAddress, Taken, next_by_relay};
use archon_types::{Millis, NodeId, Over};
use std::collections::VecDeque;

/// For how many rounds a member whom its relays failed, and a coordinator answered, may ask without trying them.
const STRAIGHT_ROUNDS: u32 = 10;

/// A heartbeat that is tried by one way after the other.
#[derive(Debug)]
pub(crate) struct Round {
    /// Relays that were not tried yet.
    left: VecDeque<NodeId>,
    /// How many relays there were to try.
    tried: usize,
    asked: Asked,
    /// The numbers of the last attempt.
    numbers: Vec<u64>,
    sent: Millis,
    given_up_at: Millis,
    /// A relay said that no coordinator answers it.
    none_answers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Nobody,
    Relay(NodeId),
    /// The coordinator that probably leads.
    Coordinator(usize),
    /// All others.
    Coordinators,
}

impl World {
    /// Begins a round if one is due, and goes on where nothing came of an attempt.
    pub(super) fn keep_beating(&mut self, host: usize, life: Life) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let relaying = &mut process.relaying;
        match &relaying.round {
            Some(round) if round.given_up_at <= now => self.next_attempt(host),
            Some(_) => {}
            None if process.next_heartbeat <= now => {
                let relays = match relaying.count {
                    0 => Vec::new(),
                    count => relaying.rows.relays_of(life.node, count),
                };
                let left: VecDeque<NodeId> = relaying.ways.order(&relays).into();
                let (tried, asked) = (left.len(), Asked::Nobody);
                if tried == 0 && !relays.is_empty() && relaying.straight == 0 {
                    let detail = format!("{life:?} asks coordinators itself, and {relays:?} did not fail it");
                    return self.judge(Err(Violation::Burden { detail }));
                }
                let (sent, given_up_at) = (now, now);
                let round = Round { left, tried, asked, numbers: Vec::new(), sent, given_up_at, none_answers: false };
                relaying.round = Some(round);
                self.next_attempt(host);
            }
            None => {}
        }
    }

    fn next_attempt(&mut self, host: usize) {
        let (now, unit) = (self.local(host), self.plan.unit_ms());
        let all_ask = self.breaks(ShellMutant::AllAskThemselves);
        let known = self.coordinators_known_to(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let (stopping, boot, guess) = (process.stopping.is_some(), process.boot, process.guess);
        let Some(round) = &mut process.relaying.round else { return };
        round.sent = now;
        round.numbers.clear();
        if let Some(relay) = round.left.pop_front() {
            let heartbeat = process.heartbeats.send(now);
            (round.asked, round.given_up_at) = (Asked::Relay(relay), now.plus(RELAY_ANSWER_MS));
            round.numbers.push(heartbeat.number());
            let from = ReturnAddress { stream: stream(host, boot), frame: heartbeat.number() };
            let there = process.relaying.rows.address(relay).and_then(host_of);
            if let Some(there) = there {
                self.pass_to_peer(host, there, PeerMessage::Carry { from, heartbeat, stopping });
            }
            return;
        }
        let (targets, asked) = match round.asked {
            Asked::Nobody | Asked::Relay(_) => {
                if round.none_answers {
                    let random = &mut self.relays.random;
                    let asks = random.below(ASKS_FOR_ITSELF.into()) == 0 || all_ask;
                    self.relays.unhelped += 1;
                    self.relays.asked += u64::from(asks);
                    self.coverage.asked_for_themselves += u64::from(asks);
                    if !asks {
                        return self.round_failed(host, unit / 2);
                    }
                }
                (vec![guess], Asked::Coordinator(guess))
            }
            Asked::Coordinator(asked) => {
                (known.into_iter().filter(|other| *other != asked).collect(), Asked::Coordinators)
            }
            Asked::Coordinators => {
                let pause = self.relays.random.between(20, 40);
                return self.round_failed(host, pause);
            }
        };
        (round.asked, round.given_up_at) = (asked, now.plus(COORDINATOR_ANSWER_MS));
        let mut messages = Vec::new();
        for coordinator in targets {
            let heartbeat = process.heartbeats.send(now);
            round.numbers.push(heartbeat.number());
            messages.push((coordinator, MemberMessage::Heartbeat { heartbeat, stopping }));
        }
        if process.relaying.count > 0 {
            self.coverage.beats_direct += messages.len() as u64;
            self.relays.last_direct = self.truth;
        }
        for (coordinator, message) in messages {
            let event = Event::MemberMessage { coordinator, host, message };
            self.send(End::Host(host), End::Coordinator(coordinator), event);
        }
    }

    fn round_failed(&mut self, host: usize, pause: u64) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.relaying.round = None;
        process.next_heartbeat = now.plus(pause);
    }

    /// An answer came that counts, by a relay whose next batch leaves then, or straight from a coordinator.
    pub(super) fn beat_answered(
        &mut self,
        host: usize,
        number: u64,
        counts: bool,
        departure_ms: Option<u64>,
        relays: usize,
    ) {
        let (now, unit) = (self.local(host), self.plan.unit_ms());
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| self.plan.relays && counts) else { return };
        let relaying = &mut process.relaying;
        relaying.count = relays;
        let Some(round) = relaying.round.take_if(|round| round.numbers.contains(&number)) else { return };
        let by = if let Asked::Relay(relay) = round.asked { Some(relay) } else { None };
        relaying.ways.answered_by(by);
        relaying.straight = match by {
            Some(_) => 0,
            None if round.tried > 0 => STRAIGHT_ROUNDS,
            None => relaying.straight.saturating_sub(1),
        };
        relaying.carried = by.is_some();
        self.coverage.second_relays += u64::from(by.is_some() && round.tried == 2 && round.left.is_empty());
        let next = departure_ms.map(|departure_ms| next_by_relay(round.sent, now, departure_ms, unit));
        process.next_heartbeat = next.unwrap_or_else(|| round.sent.plus(unit));
    }

    /// A coordinator that was asked does not lead.
    pub(super) fn coordinator_does_not_lead(&mut self, host: usize) {
        let Some(process) = self.hosts[host].process.as_ref().filter(|_| self.plan.relays) else { return };
        let waits = process.relaying.round.as_ref().is_some_and(|round| matches!(round.asked, Asked::Coordinator(_)));
        if waits {
            self.next_attempt(host);
        }
    }

    /// A relay said something to this member.
    pub(super) fn on_relayed(&mut self, host: usize, to: ReturnAddress, said: Said) {
        let (now, Some(life)) = (self.local(host), self.life(host)) else { return };
        let Some(process) = &mut self.hosts[host].process else { return };
        match said {
            Said::Answer { heartbeat, lease: None, .. } => {
                if (heartbeat.node(), heartbeat.incarnation()) == (life.node, life.incarnation) {
                    self.end_life(host);
                }
            }
            Said::Answer { heartbeat, lease: Some(answer), departure_ms, relays } => {
                let taken = process.partitions.shell_mut().grants.take(&process.heartbeats, answer, now);
                let counts = taken != Taken::Foreign;
                self.beat_answered(host, heartbeat.number(), counts, Some(departure_ms), relays);
                self.granted(host, taken);
            }
            Said::NoCoordinator | Said::Busy => {
                // Over the product's streams no word of a former life can come.
                let here = to.stream == stream(host, process.boot);
                let none_answers = matches!(said, Said::NoCoordinator);
                let waits = |round: &&mut Round| here && round.numbers == [to.frame];
                let Some(round) = process.relaying.round.as_mut().filter(waits) else { return };
                if matches!(round.asked, Asked::Relay(_)) {
                    round.none_answers |= none_answers;
                    self.next_attempt(host);
                }
            }
            Said::Over(over) => {
                self.coverage.over_by_relay += u64::from(self.told_over(host, over));
            }
        }
    }

    /// Somebody holds a row by which a life is over. Returns whether it is this machine's.
    pub(super) fn told_over(&mut self, host: usize, over: Over) -> bool {
        let Some(Life { node, incarnation }) = self.life(host) else { return false };
        let Some(process) = &mut self.hosts[host].process else { return false };
        let ended = process.partitions.shell_mut().grants.told_over(node, incarnation, over);
        if !ended {
            self.coverage.over_of_others += 1;
            return false;
        }
        self.note(|| format!("host {host} is told that {incarnation} is over"));
        let row = self.quorum.state.node(node);
        if row.is_some_and(|row| row.node.over(incarnation).is_none()) {
            let detail = format!("host {host} was told by {over:?} that its life {incarnation} is over, which goes on");
            self.judge(Err(Violation::Relayed { detail }));
        }
        self.end_life(host);
        true
    }
}
