//! Heartbeat rounds of a member in a cluster with relays: one path after the other, until one answers (rule 67).

use crate::check::violation::Violation;
use crate::coordinator::member::host_of;
use crate::event::{ClusterNow, MemberMessage, PeerMessage};
use crate::host::carried::{RelayMessage, cluster, stream};
use crate::host::round::Round;
use crate::mutant::broken_member;
use crate::world::World;
use archon_host::NodeRegistration;
use archon_member::{
    AttemptFailure, AttemptTarget, Attempts, COORDINATOR_ANSWER_MS, GrantOutcome, RELAY_ANSWER_MS, ReturnAddress, Step,
    next_by_relay,
};
use archon_types::FencingProof;

/// Number of rounds in which a member may call coordinators directly, after its relays failed and one answered.
const STRAIGHT_ROUNDS: u32 = 10;

impl World {
    /// Begins a due round, and continues where an attempt failed.
    pub(super) fn keep_beating(&mut self, host: usize, life: NodeRegistration) {
        let (now, broken) = (self.local(host), broken_member(self.mutant));
        let coordinators = self.coordinators_to_ask(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let relaying = &mut process.relaying;
        match &mut relaying.round {
            Some(round) if round.given_up_at <= now => self.next_attempt(host, None),
            Some(_) => {}
            None if process.next_heartbeat <= now => {
                let known = match relaying.count {
                    0 => Vec::new(),
                    count => relaying.rows.relays_of(cluster(), life.node, count).map(|relay| relay.id).collect(),
                };
                let relays = relaying.ways.order(&known);
                if relays.is_empty() && !known.is_empty() && relaying.straight == 0 {
                    let detail = format!("{life:?} calls coordinators directly, although {known:?} did not fail");
                    return self.judge(Err(Violation::Burden { detail }));
                }
                let mut attempts = Attempts::by(relays.iter().copied()).broken_by(broken);
                let step = attempts.begin(|| coordinators);
                let (asked, numbers) = (Vec::new(), Vec::new());
                relaying.round = Some(Round { attempts, relays, asked, numbers, sent: now, given_up_at: now });
                self.next_step(host, step);
            }
            None => {}
        }
    }

    /// Returns the coordinators that a machine knows, the probable leader first.
    fn coordinators_to_ask(&self, host: usize) -> Vec<usize> {
        let guess = self.hosts[host].process.as_ref().map(|process| process.guess);
        let known = self.coordinators_known_to(host).into_iter().filter(|known| Some(*known) != guess);
        guess.into_iter().chain(known).collect()
    }

    /// Starts the next attempt after a negative answer or a time-out.
    fn next_attempt(&mut self, host: usize, why: Option<AttemptFailure<usize>>) {
        let coordinators = self.coordinators_to_ask(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Some(round) = &mut process.relaying.round else { return };
        let mut unhelped = false;
        let random = &mut self.relays.random;
        let draw = |below: u32| {
            unhelped = true;
            random.below(below.into()) as u32
        };
        let step = match why {
            Some(why) => round.attempts.unanswered(why, || coordinators, draw),
            None => round.attempts.given_up(|| coordinators, draw),
        };
        if unhelped {
            let asks = matches!(step, Step::Ask(_));
            self.relays.unhelped += 1;
            self.relays.asked += u64::from(asks);
            self.coverage.asked_for_themselves += u64::from(asks);
        }
        self.next_step(host, step);
    }

    fn next_step(&mut self, host: usize, step: Step<usize>) {
        match step {
            Step::Ask(ways) => self.ask(host, ways),
            Step::Wait => {}
            Step::Kept => self.round_failed(host, self.plan.unit_ms() / 2),
            Step::Failed => {
                let pause = self.relays.random.between(20, 40);
                self.round_failed(host, pause);
            }
        }
    }

    /// Sends heartbeats, each with a number of its own.
    fn ask(&mut self, host: usize, ways: Vec<AttemptTarget<usize>>) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let (stopping, boot, holds) = (process.stopping.is_some(), process.boot, process.complete);
        let doors = process.prober.report(now);
        let Some(round) = &mut process.relaying.round else { return };
        round.sent = now;
        round.numbers.clear();
        let (mut to_relays, mut to_coordinators) = (Vec::new(), Vec::new());
        for way in &ways {
            let heartbeat = process.heartbeats.send(now);
            round.numbers.push(heartbeat.number());
            let waits_ms = match *way {
                AttemptTarget::Relay(relay) => {
                    let from = ReturnAddress { stream: stream(host, boot), frame: heartbeat.number() };
                    let there = process.relaying.rows.get(relay).and_then(|row| host_of(&row.address));
                    let carry = PeerMessage::Carry { from, heartbeat, stopping, holds, doors: doors.clone() };
                    to_relays.extend(there.map(|there| (there, carry)));
                    RELAY_ANSWER_MS
                }
                AttemptTarget::Coordinator(coordinator) => {
                    to_coordinators
                        .push((coordinator, MemberMessage::Heartbeat { heartbeat, stopping, doors: doors.clone() }));
                    COORDINATOR_ANSWER_MS
                }
            };
            round.given_up_at = now.plus(waits_ms);
        }
        round.asked = ways;
        if process.relaying.count > 0 && !to_coordinators.is_empty() {
            self.coverage.beats_direct += to_coordinators.len() as u64;
            self.relays.last_direct = self.truth;
        }
        for (there, carry) in to_relays {
            self.pass_to_peer(host, there, carry);
        }
        for (coordinator, message) in to_coordinators {
            self.send_to_coordinator(host, coordinator, message);
        }
    }

    fn round_failed(&mut self, host: usize, pause: u64) {
        let now = self.local(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.relaying.round = None;
        process.next_heartbeat = now.plus(pause);
    }

    /// Handles a valid answer, from a relay that names its next batch time, or directly from a coordinator.
    pub(super) fn beat_answered(
        &mut self,
        host: usize,
        number: u64,
        counts: bool,
        departure_ms: Option<u64>,
        cluster: ClusterNow,
    ) {
        let (now, unit) = (self.local(host), self.plan.unit_ms());
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| counts) else { return };
        process.prober.note_every(cluster.door_every_ms);
        if !self.plan.relays {
            return;
        }
        let relaying = &mut process.relaying;
        relaying.count = cluster.relays;
        let Some(round) = relaying.round.take_if(|round| round.numbers.contains(&number)) else { return };
        let by = if let [AttemptTarget::Relay(relay)] = round.asked[..] { Some(relay) } else { None };
        relaying.ways.answered_by(by);
        relaying.straight = match by {
            Some(_) => 0,
            None if !round.relays.is_empty() => STRAIGHT_ROUNDS,
            None => relaying.straight.saturating_sub(1),
        };
        relaying.carried = by.is_some();
        self.coverage.second_relays += u64::from(round.relays.len() == 2 && by == round.relays.last().copied());
        let next = departure_ms.map(|departure_ms| next_by_relay(round.sent, now, departure_ms, unit, unit));
        process.next_heartbeat = next.unwrap_or_else(|| round.sent.plus(unit));
    }

    /// Handles the answer of a coordinator that does not lead.
    pub(super) fn coordinator_does_not_lead(&mut self, host: usize) {
        let Some(process) = self.hosts[host].process.as_ref().filter(|_| self.plan.relays) else { return };
        let round = process.relaying.round.as_ref();
        if round.is_some_and(|round| matches!(round.asked[..], [AttemptTarget::Coordinator(_)])) {
            self.next_attempt(host, Some(AttemptFailure::Failed(None)));
        }
    }

    /// Handles a relay's message to this member.
    pub(super) fn on_relayed(&mut self, host: usize, to: ReturnAddress, said: RelayMessage) {
        let (now, Some(life)) = (self.local(host), self.life(host)) else { return };
        let Some(process) = &mut self.hosts[host].process else { return };
        match said {
            RelayMessage::Answer { heartbeat, lease: None, .. } => {
                if (heartbeat.node(), heartbeat.incarnation()) == (life.node, life.incarnation) {
                    self.end_life(host);
                }
            }
            RelayMessage::Answer { heartbeat, lease: Some(answer), news, departure_ms, cluster } => {
                let taken = process.partitions.shell_mut().grants.take(&process.heartbeats, answer, now);
                let counts = taken != GrantOutcome::Foreign;
                self.beat_answered(host, heartbeat.number(), counts, Some(departure_ms), cluster);
                self.granted(host, taken);
                let ours = (heartbeat.node(), heartbeat.incarnation()) == (life.node, life.incarnation);
                if let Some(news) = news.filter(|_| ours) {
                    self.take_news(host, *news);
                }
            }
            RelayMessage::NoCoordinator | RelayMessage::Busy => {
                // The product's streams deliver no message of a former incarnation.
                let here = to.stream == stream(host, process.boot);
                let kept = matches!(said, RelayMessage::NoCoordinator);
                let waits = |round: &&Round| {
                    here && round.numbers == [to.frame] && matches!(round.asked[..], [AttemptTarget::Relay(_)])
                };
                if process.relaying.round.as_ref().filter(waits).is_some() {
                    let why = if kept { AttemptFailure::NoCoordinator } else { AttemptFailure::Failed(None) };
                    self.next_attempt(host, Some(why));
                }
            }
            RelayMessage::Over(over) => {
                self.coverage.over_by_relay += u64::from(self.told_over(host, over));
            }
        }
    }

    /// Handles a fencing notification. Returns whether it concerns this machine.
    pub(super) fn told_over(&mut self, host: usize, over: FencingProof) -> bool {
        let Some(NodeRegistration { node, incarnation }) = self.life(host) else { return false };
        let Some(process) = &mut self.hosts[host].process else { return false };
        let ended = process.partitions.shell_mut().grants.told_over(node, incarnation, over);
        if !ended {
            self.coverage.over_of_others += 1;
            return false;
        }
        self.note(|| format!("host {host} learns that its incarnation {incarnation} is fenced"));
        let row = self.quorum.state.node(node);
        if row.is_some_and(|row| row.node.over(incarnation).is_none()) {
            let detail = format!(
                "host {host} learned from {over:?} that its incarnation {incarnation} is fenced, and it is not"
            );
            self.judge(Err(Violation::Relayed { detail }));
        }
        self.end_life(host);
        true
    }
}
