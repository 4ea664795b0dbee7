//! The work of a leading coordinator: control turns, pushes, heartbeat answers, registrations and reports.

use super::batches::{cluster_now, news};
use super::session::{LastPush, UnderWay, WholeTables};
use crate::check::door_checks::Verdicts;
use crate::check::violation::Violation;
use crate::coordinator::member::host_of;
use crate::event::{
    BatchId, CoordinatorMessage, Event, HeartbeatRequest, MemberMessage, Proposal, ProposalReply, Push,
};
use crate::host::carried::CarriedBeat;
use crate::world::World;
use archon_coordinator_core::term::{self, ConfirmedHeartbeat, PollAnswer, PushStep, Round};
use archon_coordinator_core::{Command, DoorNews};
use archon_types::{ErrorKind, Incarnation, Millis, NodeId, NodeStatus, Version};

/// Pause before an unacknowledged push is repeated, in milliseconds.
const PUSH_MS: u64 = 50;

impl World {
    /// Schedules an immediate turn and push round after a change of state.
    pub(crate) fn wake_session(&mut self, coordinator: usize) {
        let truth = self.truth;
        let Some(session) = &mut self.quorum.coordinators[coordinator].session else { return };
        let term = session.term.number();
        if session.turn_at > truth + 1 {
            session.turn_at = truth + 1;
            self.after(1, Event::Turn { coordinator, term });
        }
        self.push_soon(coordinator);
    }

    /// Schedules an immediate push round.
    fn push_soon(&mut self, coordinator: usize) {
        let truth = self.truth;
        let Some(session) = &mut self.quorum.coordinators[coordinator].session else { return };
        let term = session.term.number();
        if session.push_at > truth + 2 {
            session.push_at = truth + 2;
            self.after(2, Event::PushRound { coordinator, term });
        }
    }

    pub(crate) fn turn(&mut self, coordinator: usize, term: u64) {
        let (truth, now) = (self.truth, self.coordinator_now(coordinator));
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(session) = own.session.as_mut().filter(|session| session.term.number() == term) else { return };
        if truth < session.turn_at {
            return;
        }
        session.term.set_wall(now, Millis::new(truth));
        let turned = session.term.turn(&own.state, now);
        let liveness = session.term.liveness();
        let verdicts = Verdicts {
            led_for: now.since(liveness.became_leader_at()),
            unreached: liveness.unreached(),
            alive: own.state.nodes_alive(),
            news: turned.commands.iter().filter_map(news_of_a_door).collect(),
        };
        let wake = own.clock.truth_of(turned.wake_at, truth);
        session.turn_at = wake;
        self.after(wake - truth, Event::Turn { coordinator, term });
        // A paused former leader moves nothing by old reports: it commits none of its decisions, and withdraws
        // leaderships only in answers that a round confirmed.
        if self.led(coordinator) == Some(term) {
            self.judge_verdicts(&verdicts);
        }
        if !turned.commands.is_empty() {
            self.propose(coordinator, Proposal { term, commands: turned.commands, reply: None });
        }
    }

    pub(crate) fn push_round(&mut self, coordinator: usize, term: u64) {
        let (truth, now) = (self.truth, self.coordinator_now(coordinator));
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(session) = own.session.as_mut().filter(|session| session.term.number() == term) else { return };
        if truth < session.push_at {
            return;
        }
        session.push_at = truth + PUSH_MS;
        let state = &own.state;
        let mut pushes = Vec::new();
        for row in state.nodes.values().map(|row| &row.node) {
            let pushed = session.pushed.entry(row.id).or_insert_with(|| LastPush::nothing(row.incarnation));
            if pushed.incarnation != row.incarnation {
                *pushed = LastPush::nothing(row.incarnation);
            }
            let heard =
                session.heard.get(&row.id).filter(|(life, _)| *life == row.incarnation).map(|(_, heard)| *heard);
            if let Some(heard) = heard {
                pushed.acknowledged.hear(state, heard, true);
            }
            let has_news = |holds| news(state, holds).is_some();
            let step = pushed.acknowledged.next_step(state, row.id, heard, now, has_news);
            self.coverage.pushes_spared += u64::from(matches!(step, PushStep::Await(_)));
            let waits = pushed.under_way.as_ref().is_some_and(|under_way| truth - under_way.sent < PUSH_MS);
            if waits || !matches!(step, PushStep::Push(_)) {
                continue;
            }
            let Some((push, promise)) = pushed.acknowledged.next(state, row.id, &WholeTables) else { continue };
            session.pushes += 1;
            let (number, incarnation) = (session.pushes, row.incarnation);
            pushed.under_way = Some(UnderWay { number, promise, sent: truth });
            let term::Push { version, duties, nodes, tables, complete, .. } = push;
            let push = Push { coordinator, term, number, incarnation, version, duties, nodes, tables, complete };
            pushes.push((row.address.clone(), push));
        }
        for (address, push) in pushes {
            if let Some(host) = host_of(&address) {
                self.name_coordinators(coordinator, host);
                let message = CoordinatorMessage::Push(Box::new(push));
                self.send_to_host(coordinator, host, message);
            }
        }
        self.after(PUSH_MS, Event::PushRound { coordinator, term });
    }

    pub(crate) fn on_member_message(&mut self, coordinator: usize, host: usize, message: MemberMessage) {
        let now = self.coordinator_now(coordinator);
        if !self.is_up(coordinator) {
            return;
        }
        let leader = self.known_leader(coordinator);
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(session) = &mut own.session else {
            let message = match message {
                MemberMessage::Beats { batch, .. } => CoordinatorMessage::BatchRefused { batch, leader },
                _ => CoordinatorMessage::NotLeader { leader },
            };
            return self.send_to_host(coordinator, host, message);
        };
        let term = session.term.number();
        match message {
            MemberMessage::Register(register) => {
                let reply = Some(ProposalReply::Registration { host, boot: register.boot });
                let register = Box::new(register.by_protocol(own.state.protocol));
                self.propose(coordinator, Proposal { term, commands: vec![Command::Register(register)], reply });
            }
            MemberMessage::Heartbeat { heartbeat, stopping, doors } => {
                let beat = CarriedBeat { heartbeat, stopping, holds: Version::ZERO, doors, came: now };
                self.on_beats(coordinator, host, None, vec![beat]);
            }
            MemberMessage::Beats { batch, beats } => self.on_beats(coordinator, host, Some(batch), beats),
            MemberMessage::Report { node, incarnation, report } => {
                let reports = std::slice::from_ref(&report);
                let reported = session.term.reports(&own.state, now, node, incarnation, reports);
                let refused = reported.refused.first().and_then(Option::as_ref).map(|error| error.kind);
                match refused {
                    Some(ErrorKind::StaleIncarnation) => self.stale(coordinator, host, (node, incarnation)),
                    _ if !reported.needs_round() => {
                        let commands = reported.commands.into_iter().map(|(_, command)| command).collect();
                        let reply = Some(ProposalReply::Report { host, report });
                        self.propose(coordinator, Proposal { term, commands, reply });
                    }
                    _ if self.led(coordinator) != Some(term) => {}
                    _ => {
                        let message = CoordinatorMessage::Reported { report, refused };
                        self.send_to_host(coordinator, host, message);
                    }
                }
            }
            MemberMessage::Leave { node, incarnation } => {
                if let Ok(commands) = session.term.farewell(&own.state, node, incarnation) {
                    self.propose(coordinator, Proposal { term, commands, reply: None });
                }
            }
            MemberMessage::Poll { node, incarnation, obeyed } => {
                let poll = session.polls.begin(node, incarnation, obeyed);
                match session.polls.answer(&own.state, term, poll) {
                    Ok(PollAnswer::News(version, duties)) => {
                        let message = CoordinatorMessage::Duties { incarnation, term, version, duties };
                        self.send_to_host(coordinator, host, message);
                    }
                    // Nothing is parked: the participant asks again soon.
                    Ok(_) => {}
                    Err(error) if error.kind == ErrorKind::StaleIncarnation => {
                        self.stale(coordinator, host, (node, incarnation));
                    }
                    Err(_) => {}
                }
            }
            MemberMessage::Pushed { node, number, version } => {
                let Some(pushed) = session.pushed.get_mut(&node) else { return };
                // An answer that came after the push was given up is ignored.
                let answered = pushed.under_way.take_if(|under_way| under_way.number == number);
                let Some(answered) = answered else { return };
                pushed.acknowledged.take(answered.promise, version, false, now);
                if pushed.acknowledged.due(&own.state, node).is_some() {
                    self.push_soon(coordinator);
                }
            }
        }
    }

    pub(super) fn stale(&mut self, coordinator: usize, host: usize, (node, incarnation): (NodeId, Incarnation)) {
        self.judge_ended(coordinator, node, incarnation);
        let message = CoordinatorMessage::Stale { incarnation };
        self.send_to_host(coordinator, host, message);
    }

    /// V: checks that a coordinator fences no valid incarnation (rule 72).
    pub(super) fn judge_ended(&mut self, coordinator: usize, node: NodeId, incarnation: Incarnation) {
        let Some(row) = self.quorum.state.node(node).map(|row| &row.node) else { return };
        if row.incarnation == incarnation && row.status == NodeStatus::Alive {
            let detail =
                format!("coordinator {coordinator} declares incarnation {incarnation} of {node} fenced, and it is not");
            self.judge(Err(Violation::Relayed { detail }));
        }
    }

    /// Returns the term in which a majority confirms the coordinator's leadership at this instant.
    fn led(&self, coordinator: usize) -> Option<u64> {
        if self.plan.changes_quorum {
            return self.confirmed_term(coordinator);
        }
        self.quorum.commits(coordinator, self.truth).then_some(self.quorum.term)
    }

    /// Begins a quorum round for the waiting heartbeats. Later ones share the next round, unless this one hangs.
    pub(super) fn begin_round(&mut self, coordinator: usize) {
        let led = self.led(coordinator);
        let Some(session) = &mut self.quorum.coordinators[coordinator].session else { return };
        let (term, round) = (session.term.number(), session.term.begin_round());
        // Some rounds take longer than a failure time-out.
        let slow = self.plan.settings.timing.failure_timeout_ms * 2;
        let most = if self.random.permille(40) && !self.healing { slow } else { 6 };
        let delay = self.random.between(1, most);
        // The majority may have answered at any instant of it.
        let heard = (self.random.below(2) == 0).then_some(led);
        session.round = (most < slow).then_some(round);
        self.after(delay, Event::RoundDone { coordinator, term, round, heard });
    }

    /// Ends a quorum round: it confirmed the leadership, or not.
    pub(crate) fn round_done(&mut self, coordinator: usize, term: u64, round: Round, heard: Option<Option<u64>>) {
        let led = heard.unwrap_or_else(|| self.led(coordinator));
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(session) = own.session.as_mut().filter(|session| session.term.number() == term) else { return };
        let (covered, rest): (Vec<_>, Vec<_>) =
            session.waiting.drain(..).partition(|(beat, _)| session.term.covers(&own.state, round, *beat));
        session.waiting = rest;
        if session.round == Some(round) {
            session.round = None;
        }
        let confirmed = |(beat, asked)| Some((session.term.confirmed(&own.state, beat, round, led)?, asked));
        let heartbeats: Vec<_> = covered.into_iter().filter_map(confirmed).collect();
        let more = session.round.is_none() && !session.waiting.is_empty();
        self.coverage.beats_shared += heartbeats.len().saturating_sub(1) as u64;
        // The state then contains every change that was committed before.
        self.apply_committed(coordinator);
        if !heartbeats.is_empty() {
            let delay = self.random.between(0, 1);
            self.after(delay, Event::Answer { coordinator, term, heartbeats });
        }
        if more {
            self.begin_round(coordinator);
        }
    }

    pub(crate) fn answer_heartbeats(
        &mut self,
        coordinator: usize,
        term: u64,
        heartbeats: Vec<(ConfirmedHeartbeat, HeartbeatRequest)>,
    ) {
        let now = self.coordinator_now(coordinator);
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(session) = own.session.as_mut().filter(|session| session.term.number() == term) else { return };
        let answers = session.term.answers(&own.state, heartbeats.iter().map(|(confirmed, _)| *confirmed), now);
        let cluster = cluster_now(&own.state);
        let mut batches: Vec<((usize, BatchId), Vec<_>)> = Vec::new();
        for (answer, (_, HeartbeatRequest { host, heartbeat, batch, holds })) in answers.into_iter().zip(heartbeats) {
            let answer = match answer {
                Ok(answer) => Some(answer),
                Err(error) if error.kind == ErrorKind::StaleIncarnation => None,
                // It retries.
                Err(_) => continue,
            };
            if let Some(batch) = batch {
                let lease = answer.map(|answer| heartbeat.answer(answer.lease_ms, answer.withdrawn));
                self.coverage.leases += u64::from(lease.is_some());
                let state = &self.quorum.coordinators[coordinator].state;
                let news = lease.as_ref().and_then(|_| news(state, holds));
                match batches.iter_mut().find(|(key, _)| *key == (host, batch)) {
                    Some((_, answers)) => answers.push((heartbeat, lease, news)),
                    None => batches.push(((host, batch), vec![(heartbeat, lease, news)])),
                }
                continue;
            }
            let Some(answer) = answer else {
                self.stale(coordinator, host, (heartbeat.node(), heartbeat.incarnation()));
                continue;
            };
            self.coverage.leases += 1;
            self.coverage.withdrawn += answer.withdrawn.len() as u64;
            self.name_coordinators(coordinator, host);
            let answer = heartbeat.answer(answer.lease_ms, answer.withdrawn);
            let message = CoordinatorMessage::Lease { answer, cluster };
            self.send_to_host(coordinator, host, message);
        }
        for ((host, batch), answers) in batches {
            self.answer_batch(coordinator, host, batch, answers);
        }
    }
}

/// Returns the reachability change that a command records.
fn news_of_a_door(command: &Command) -> Option<DoorNews> {
    if let Command::NoteDoor(news) = command { Some(news.clone()) } else { None }
}
