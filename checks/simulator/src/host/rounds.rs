//! Heartbeat rounds of a member in a cluster with relays: one path after the other, until one answers (rule 67).

use crate::check::violation::Violation;
use crate::coordinator::member::host_of;
use crate::event::{ClusterNow, MemberMessage, PeerMessage};
use crate::host::carried::{RelayMessage, RelayState, cluster, stream};
use crate::world::World;
use archon_host::NodeRegistration;
use archon_member::{ASKS_FOR_ITSELF, AttemptFailure, AttemptTarget, GrantOutcome, ReturnAddress, Step};
use archon_types::FencingProof;

/// Number of rounds in which a member may call coordinators directly, after its relays failed and one answered.
const STRAIGHT_ROUNDS: u32 = 10;

/// Source of random numbers below a limit.
type Draw<'a> = &'a mut dyn FnMut(u32) -> u32;

impl World {
    /// Begins a due round, and continues where an attempt timed out.
    pub(super) fn keep_beating(&mut self, host: usize, life: NodeRegistration) {
        let now = self.local(host);
        let coordinators = self.coordinators_to_ask(host);
        let mut known = Vec::new();
        let step = self.drive_heartbeats(host, |RelayState { driver, rows, count, .. }, draw| {
            let relays = || {
                known.extend(rows.relays_of(cluster(), life.node, *count).map(|relay| relay.id));
                Some(known.clone())
            };
            driver.due(now, relays, &coordinators, draw)
        });
        let Some(process) = &self.hosts[host].process else { return };
        let direct = matches!(&step, Step::Ask(ways) if matches!(ways[..], [AttemptTarget::Coordinator(_), ..]));
        if direct && !known.is_empty() && process.relaying.straight == 0 {
            let detail = format!("{life:?} calls coordinators directly, although {known:?} did not fail");
            return self.judge(Err(Violation::Burden { detail }));
        }
        self.ask(host, step);
    }

    /// Returns the coordinators that a machine knows, the probable leader first.
    fn coordinators_to_ask(&self, host: usize) -> Vec<usize> {
        let guess = self.hosts[host].process.as_ref().map(|process| process.guess);
        let known = self.coordinators_known_to(host).into_iter().filter(|known| Some(*known) != guess);
        guess.into_iter().chain(known).collect()
    }

    /// Has the driver of a machine's heartbeats take a step, and counts the members that no relay helped.
    fn drive_heartbeats(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut RelayState, Draw<'_>) -> Step<usize>,
    ) -> Step<usize> {
        let Some(process) = &mut self.hosts[host].process else { return Step::Wait };
        let (random, mut unhelped) = (&mut self.relays.random, false);
        let step = act(&mut process.relaying, &mut |below| {
            unhelped |= below == ASKS_FOR_ITSELF;
            random.below(below.into()) as u32
        });
        if unhelped {
            let asks = u64::from(matches!(step, Step::Ask(_)));
            self.relays.unhelped += 1;
            self.relays.asked += asks;
            self.coverage.asked_for_themselves += asks;
        }
        step
    }

    /// Handles a refused heartbeat.
    fn beat_refused(&mut self, host: usize, number: u64, why: AttemptFailure<usize>) {
        let (now, coordinators) = (self.local(host), self.coordinators_to_ask(host));
        let step = self
            .drive_heartbeats(host, |relaying, draw| relaying.driver.unanswered(number, why, now, &coordinators, draw));
        self.ask(host, step);
    }

    /// Sends the heartbeats of a step, each with a number of its own.
    fn ask(&mut self, host: usize, step: Step<usize>) {
        let (now, Step::Ask(ways)) = (self.local(host), step) else { return };
        let Some(process) = &mut self.hosts[host].process else { return };
        let (stopping, boot, holds) = (process.stopping.is_some(), process.boot, process.complete);
        let doors = process.prober.report(now);
        let (mut to_relays, mut to_coordinators) = (Vec::new(), Vec::new());
        for way in ways {
            let (heartbeat, doors) = (process.heartbeats.send(now), doors.clone());
            process.relaying.driver.note_sent(heartbeat.number(), way, now);
            match way {
                AttemptTarget::Relay(relay) => {
                    let from = ReturnAddress { stream: stream(host, boot), frame: heartbeat.number() };
                    let there = process.relaying.rows.get(relay).and_then(|row| host_of(&row.address));
                    let carry = PeerMessage::Carry { from, heartbeat, stopping, holds, doors };
                    to_relays.extend(there.map(|there| (there, carry)));
                }
                AttemptTarget::Coordinator(coordinator) => {
                    to_coordinators.push((coordinator, MemberMessage::Heartbeat { heartbeat, stopping, doors }));
                }
            }
        }
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

    /// Handles a valid answer, from a relay that names its next batch time, or directly from a coordinator.
    pub(super) fn beat_answered(
        &mut self,
        host: usize,
        number: u64,
        taken: &GrantOutcome,
        departure_ms: Option<u64>,
        cluster: ClusterNow,
    ) {
        let now = self.local(host);
        let Some(process) = self.hosts[host].process.as_mut().filter(|_| *taken != GrantOutcome::Foreign) else {
            return;
        };
        process.prober.note_every(cluster.door_every_ms);
        if !self.plan.relays {
            return;
        }
        let relaying = &mut process.relaying;
        relaying.count = cluster.relays;
        let draw = |below: u32| self.relays.random.below(below.into()) as u32;
        let Some(round) = relaying.driver.answered(number, taken, departure_ms, now, draw) else { return };
        relaying.carried = matches!(round.by, AttemptTarget::Relay(_));
        relaying.straight = match round.by {
            AttemptTarget::Relay(_) => 0,
            AttemptTarget::Coordinator(_) if !round.relays.is_empty() => STRAIGHT_ROUNDS,
            AttemptTarget::Coordinator(_) => relaying.straight.saturating_sub(1),
        };
        let second = |relays: &[_]| matches!(relays, [_, last] if round.by == AttemptTarget::Relay(*last));
        self.coverage.second_relays += u64::from(second(&round.relays));
    }

    /// Handles the answer of a coordinator that does not lead.
    pub(super) fn coordinator_does_not_lead(&mut self, host: usize) {
        let Some(process) = self.hosts[host].process.as_ref().filter(|_| self.plan.relays) else { return };
        if let [(number, AttemptTarget::Coordinator(_))] = *process.relaying.driver.pending() {
            self.beat_refused(host, number, AttemptFailure::Failed(None));
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
                self.beat_answered(host, heartbeat.number(), &taken, Some(departure_ms), cluster);
                self.granted(host, taken);
                let ours = (heartbeat.node(), heartbeat.incarnation()) == (life.node, life.incarnation);
                if let Some(news) = news.filter(|_| ours) {
                    self.take_news(host, *news);
                }
            }
            // The product's streams deliver no message of a former incarnation.
            RelayMessage::NoCoordinator | RelayMessage::Busy if to.stream != stream(host, process.boot) => {}
            RelayMessage::NoCoordinator => self.beat_refused(host, to.frame, AttemptFailure::NoCoordinator),
            RelayMessage::Busy => self.beat_refused(host, to.frame, AttemptFailure::Failed(None)),
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
