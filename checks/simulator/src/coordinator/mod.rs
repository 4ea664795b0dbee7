//! The quorum. Most worlds assume Raft to be correct: one log, terms, three coordinators that apply it late, leaders
//! that do not know yet that they are deposed. Where members change, each coordinator has its own log and votes
//! ([`crate::raft`]), which produce one committed log.

mod batches;
mod carry;
mod change;
mod count;
mod founding;
pub(crate) mod member;
pub(crate) mod quorum;
mod serve;
mod session;
mod standing;

pub(crate) use member::{Member, StartReason, first_address};
pub(crate) use session::Session;

use crate::check::violation::Violation;
use crate::coordinator::quorum::{COORDINATORS, UnderWay};
use crate::event::{CoordinatorMessage, Event, Proposal, ProposalReply};
use crate::raft::{Entry, EntryContent};
use crate::world::World;
use archon_coordinator_core::{
    Actor, ClusterState, Command, CommandBatch, Response, check, check_lose_node, check_step,
};
use archon_types::{ErrorKind, Millis};
use std::sync::Arc;

/// Returns the name that a registration claims.
fn claimed(commands: &[Command]) -> Option<String> {
    match commands {
        [Command::Register(register)] => Some(register.name.clone()),
        _ => None,
    }
}

/// Returns a coordinator's proposal in a term, at this instant.
fn batch(proposer: u64, truth: u64, term: u64, commands: Vec<Command>) -> CommandBatch {
    let who = Actor::Coordinator(proposer);
    CommandBatch { request: None, at: Millis::new(truth), who, proposer, term, commands }
}

impl World {
    /// Returns the instant on a coordinator's own clock.
    pub(crate) fn coordinator_now(&self, coordinator: usize) -> Millis {
        self.quorum.coordinators[coordinator].clock.at(self.truth)
    }

    pub(crate) fn propose(&mut self, coordinator: usize, proposal: Proposal) {
        self.restart_amid(coordinator, &proposal.commands);
        let since = self.truth;
        self.quorum.coordinators[coordinator].under_way.push_back(UnderWay { proposal, since });
        let unit = self.plan.unit_ms();
        let slow = self.quorum.slow_until > self.truth;
        let delay = match slow || self.random.permille(30) {
            true => self.random.between(1, unit * 8),
            false => self.random.between(1, 10),
        };
        self.after(delay, Event::Append { coordinator });
    }

    /// Commits the oldest pending proposal of this coordinator, if it leads and reaches a majority.
    pub(crate) fn append_next(&mut self, coordinator: usize) {
        if self.plan.changes_quorum {
            return self.append_as_member(coordinator);
        }
        let truth = self.truth;
        if self.quorum.leader == Some(coordinator) && !self.quorum.commits(coordinator, truth) {
            // It stays in the leader's log and is committed once a majority answers again.
            let delay = self.random.between(5, 40);
            self.after(delay, Event::Append { coordinator });
            return;
        }
        let Some(UnderWay { proposal, .. }) = self.quorum.coordinators[coordinator].under_way.pop_front() else {
            return;
        };
        if self.quorum.leader == Some(coordinator) {
            self.commit(coordinator, proposal);
        }
    }

    fn commit(&mut self, coordinator: usize, proposal: Proposal) {
        let Proposal { term, commands, reply } = proposal;
        let claimed = claimed(&commands);
        let batch = batch(coordinator as u64 + 1, self.truth, term, commands);
        let responses = self.append(Arc::new(Entry { term: self.quorum.term, what: EntryContent::Batch(batch) }));
        self.apply_committed(coordinator);
        for other in (0..COORDINATORS).filter(|other| *other != coordinator) {
            let lag = self.random.between(1, 30);
            self.after(lag, Event::Apply { coordinator: other });
        }
        self.answer_proposal(coordinator, term, reply, claimed.as_deref(), &responses);
    }

    /// Answers the caller of a proposal.
    fn answer_proposal(
        &mut self,
        coordinator: usize,
        term: u64,
        reply: Option<ProposalReply>,
        claimed: Option<&str>,
        responses: &[Response],
    ) {
        match (reply, responses) {
            (Some(ProposalReply::Registration { host, boot }), [Response::Registered { node, incarnation }]) => {
                let (node, incarnation) = (*node, *incarnation);
                let state = &self.quorum.coordinators[coordinator].state;
                let (protocol, generation_key) = (state.protocol, state.generation_key(state.generation));
                let message = CoordinatorMessage::Registered { boot, node, generation_key, incarnation, protocol };
                self.send_to_host(coordinator, host, message);
            }
            (Some(ProposalReply::Registration { host, boot }), [Response::Refused(error)])
                if matches!(error.kind, ErrorKind::StaleVersion | ErrorKind::ProtocolMismatch) =>
            {
                let message = CoordinatorMessage::NotRegistered { boot, error: error.clone() };
                self.send_to_host(coordinator, host, message);
            }
            (Some(ProposalReply::Registration { .. }), [Response::Refused(error)])
                if error.kind == ErrorKind::DataLoss =>
            {
                self.give_up(coordinator, term, claimed);
            }
            // A void entry has no result: its caller gets no answer.
            (Some(ProposalReply::Report { host, report }), [_, ..]) => {
                let refused = responses.iter().find_map(Response::refusal).map(|error| error.kind);
                let message = CoordinatorMessage::Reported { report, refused };
                self.send_to_host(coordinator, host, message);
            }
            _ => {}
        }
    }

    /// An operator declares the last in-sync copies lost if a wiped directory replaces theirs.
    fn give_up(&mut self, coordinator: usize, term: u64, name: Option<&str>) {
        let state = &self.quorum.coordinators[coordinator].state;
        let old = name.and_then(|name| state.node_by_name(name)).map(|row| row.node.id);
        if let Some(loss) = old.and_then(|old| check_lose_node(state, old).ok()) {
            self.note(|| format!("the operator gives up {} last copies", loss.last_copies.len()));
            self.propose(coordinator, Proposal { term, commands: vec![loss.command], reply: None });
        }
    }

    /// Appends an entry permanently, and checks its effect on the state.
    fn append(&mut self, entry: Arc<Entry>) -> Vec<Response> {
        let index = self.quorum.last_index() + 1;
        self.quorum.state.events.clear();
        let before = match &entry.what {
            EntryContent::Batch(batch) if batch.term == entry.term => Some(self.quorum.state.clone()),
            EntryContent::Members(_) => Some(self.quorum.state.clone()),
            _ => None,
        };
        let responses = entry.apply_to(&mut self.quorum.state, index);
        match (&entry.what, before) {
            (EntryContent::Batch(batch), Some(before)) => {
                let trace = || {
                    let names: Vec<String> = batch.commands.iter().map(|command| format!("{command:?}")).collect();
                    format!("log {index} term {}: {} -> {responses:?}", entry.term, names.join(" "))
                };
                self.trace.note(self.truth, trace);
                self.check_state(&before);
                self.count_raises(&batch.commands, before.protocol, before.protocol_held);
                self.count_change(&before, batch, &responses);
                self.checks.rows_changed = true;
            }
            (EntryContent::Members(membership), Some(before)) => {
                self.quorum.members_at = self.quorum.log.len() + 1;
                self.trace.note(self.truth, || format!("log {index} term {}: {membership:?}", entry.term));
                self.check_state(&before);
            }
            (EntryContent::Batch(_), None) => self.coverage.void_entries += 1,
            _ => {}
        }
        self.quorum.log.push(entry);
        responses
    }

    fn check_state(&mut self, before: &ClusterState) {
        let after = &self.quorum.state;
        let checked = check(after).and_then(|()| check_step(before, after));
        self.judge(checked.map_err(|violation| Violation::State { detail: violation.to_string() }));
    }

    /// Applies all committed entries at a coordinator.
    pub(crate) fn apply_committed(&mut self, coordinator: usize) {
        let quorum = &mut self.quorum;
        let own = &mut quorum.coordinators[coordinator];
        let known = own
            .member
            .as_ref()
            .map_or(quorum.log.len(), |member| if member.up { member.raft.commit().min(quorum.log.len()) } else { 0 });
        if own.applied >= known {
            return;
        }
        let mut answered = Vec::new();
        while let Some(entry) = quorum.log.get(own.applied).filter(|_| own.applied < known) {
            own.applied += 1;
            let responses = entry.apply_to(&mut own.state, quorum.origin.applied + own.applied as u64);
            let waiting = own.member.as_mut().and_then(|member| member.waiting.remove(&own.applied));
            answered
                .extend(waiting.filter(|waiting| waiting.entry_term == entry.term).map(|waiting| (waiting, responses)));
        }
        self.wake_session(coordinator);
        self.answer_waiting(coordinator, answered);
    }

    fn begin_term(&mut self, coordinator: usize) {
        self.quorum.term += 1;
        self.quorum.leader = Some(coordinator);
        self.coverage.terms += 1;
        let term = self.quorum.term;
        self.note(|| format!("coordinator {coordinator} leads in term {term}"));
        self.append(Arc::new(Entry { term, what: EntryContent::Blank }));
        self.apply_committed(coordinator);
        let now = self.coordinator_now(coordinator);
        self.quorum.coordinators[coordinator].session = Some(Session::new(term, now));
        self.wake_session(coordinator);
    }

    /// Elects another leader, or the same one again.
    pub(crate) fn elect_coordinator(&mut self) {
        if self.plan.changes_quorum {
            return self.have_another_lead();
        }
        let truth = self.truth;
        if self.quorum.down_until > truth {
            let delay = self.quorum.down_until - truth + self.random.between(20, 200);
            self.after(delay, Event::Elect);
            return;
        }
        let able: Vec<usize> = (0..COORDINATORS)
            .filter(|number| {
                let other = &self.quorum.coordinators[*number];
                !other.is_isolated(truth) && other.paused_until <= truth
            })
            .collect();
        if able.len() < 2 {
            let delay = self.random.between(20, 200);
            self.after(delay, Event::Elect);
            return;
        }
        let Some(chosen) = self.random.pick(&able) else { return };
        if let Some(former) = self.quorum.leader {
            self.keep_orphans(former);
            if former != chosen {
                let delay = match self.random.below(3) {
                    0 => self.random.between(1, self.plan.settings.timing.failure_timeout_ms * 2),
                    _ => self.random.between(1, 20),
                };
                self.after(delay, Event::Depose { coordinator: former });
            }
        }
        self.begin_term(chosen);
    }

    /// Handles the former leader's pending proposals, of which a prefix may have reached the new leader: it is
    /// committed in its own term; the rest is lost, or is appended under the new term, and is then void.
    fn keep_orphans(&mut self, former: usize) {
        let own = &self.quorum.coordinators[former];
        let reached = own.isolated.filter(|(_, until)| *until > self.truth).map(|(since, _)| since);
        let could: usize = own.under_way.iter().take_while(|item| reached.is_none_or(|at| item.since < at)).count();
        let kept = self.random.index(could + 1);
        for _ in 0..kept {
            let Some(UnderWay { proposal, .. }) = self.quorum.coordinators[former].under_way.pop_front() else { break };
            self.coverage.orphan_commits += 1;
            let Proposal { term, commands, .. } = proposal;
            let batch = batch(former as u64 + 1, self.truth, term, commands);
            self.append(Arc::new(Entry { term: self.quorum.term, what: EntryContent::Batch(batch) }));
        }
    }

    /// Notifies a coordinator that another one leads.
    pub(crate) fn depose(&mut self, coordinator: usize) {
        let own = &mut self.quorum.coordinators[coordinator];
        if let Some(member) = &own.member {
            let led = member.raft.leads().then_some(member.raft.disk.term);
            own.session.take_if(|session| led != Some(session.term.number()));
            return;
        }
        if own.is_isolated(self.truth) {
            let delay = self.random.between(20, 100);
            self.after(delay, Event::Depose { coordinator });
        } else if self.quorum.leader != Some(coordinator) {
            self.quorum.coordinators[coordinator].session = None;
        }
    }
}
