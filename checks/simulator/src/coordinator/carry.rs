//! Delivery of messages between quorum members, and their consequences: commits, elections, sessions.

use super::member::{EntryResult, WaitingCaller};
use super::{Proposal, Session, batch, claimed};
use crate::coordinator::quorum::UnderWay;
use crate::event::Event;
use crate::mutant::broken_core;
use crate::network::End;
use crate::raft::{Body, EntryContent, Message};
use crate::world::World;
use archon_coordinator_core::{Acquaintances, CoordinatorRefusal, CoordinatorStanding};

impl World {
    /// Returns true if a coordinator's process runs.
    pub(crate) fn is_up(&self, coordinator: usize) -> bool {
        self.quorum.coordinators[coordinator].member.as_ref().is_none_or(|member| member.up)
    }

    /// Returns the coordinator that listens at an address.
    pub(crate) fn coordinator_at(&self, address: &str) -> Option<usize> {
        let at = |number: &usize| {
            let member = self.quorum.coordinators[*number].member.as_ref();
            member.is_some_and(|member| member.address == address && member.is_whole())
        };
        (0..self.quorum.coordinators.len()).rev().find(at)
    }

    /// Returns true if two coordinators run and reach each other.
    pub(crate) fn connects(&self, one: usize, other: usize) -> bool {
        let truth = self.truth;
        let able = |number: usize| {
            let coordinator = &self.quorum.coordinators[number];
            self.is_up(number) && coordinator.paused_until <= truth && !coordinator.is_isolated(truth)
        };
        let (here, there) = (End::Coordinator(one), End::Coordinator(other));
        self.quorum.down_until <= truth
            && able(one)
            && able(other)
            && !self.network.is_cut(truth, here, there)
            && !self.network.is_cut(truth, there, here)
    }

    /// Returns the members that a coordinator knows.
    pub(super) fn acquaintances(&self, coordinator: usize) -> Acquaintances {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return Acquaintances::default() };
        let members = member.raft.membership().map(|membership| membership.directories()).unwrap_or_default();
        let known = Acquaintances::new(members).broken_by(broken_core(self.mutant));
        let retired = &self.quorum.coordinators[coordinator].state.coordinators.retired;
        known.with_vouched(&member.raft.vouched, |id| retired.contains_key(&id))
    }

    /// Returns true if one coordinator accepts messages of another.
    fn hears(&self, one: usize, other: usize) -> bool {
        let (Some(one_is), Some(other_is)) =
            (&self.quorum.coordinators[one].member, &self.quorum.coordinators[other].member)
        else {
            return false;
        };
        let (disk, own) = (&other_is.raft.disk, &one_is.raft.disk);
        let expected = own.expected.keys().copied().collect();
        let hears = || self.acquaintances(one).hears(own.id, disk.id, disk.storage, &expected).is_ok();
        own.started && disk.started && hears()
    }

    /// Returns the coordinator at a member's address in another one's log, if it is that member.
    fn reached_as(&self, from: usize, id: u64) -> Option<usize> {
        let own = self.quorum.coordinators[from].member.as_ref()?;
        let reached = self.coordinator_at(own.raft.membership()?.address(id)?)?;
        let other = self.quorum.coordinators[reached].member.as_ref()?;
        (other.raft.disk.id == id
            && self.connects(from, reached)
            && self.hears(reached, from)
            && self.hears(from, reached))
        .then_some(reached)
    }

    /// Returns the term in which a coordinator leads, if a majority of the members in its log confirms it at this
    /// instant.
    pub(super) fn confirmed_term(&self, coordinator: usize) -> Option<u64> {
        let raft = &self.quorum.coordinators[coordinator].member.as_ref()?.raft;
        let term = raft.disk.term;
        let confirms = |id: u64| {
            let other = if id == raft.disk.id { Some(coordinator) } else { self.reached_as(coordinator, id) };
            let member = other.and_then(|other| self.quorum.coordinators[other].member.as_ref());
            member.is_some_and(|member| member.raft.disk.term <= term)
        };
        let able =
            self.quorum.down_until <= self.truth && self.quorum.coordinators[coordinator].paused_until <= self.truth;
        (able && raft.leads() && raft.membership()?.decides(confirms)).then_some(term)
    }

    /// Returns true if a coordinator would win an election now; `calm`: members that hear a leader do not vote.
    pub(crate) fn could_win(&self, coordinator: usize, calm: bool) -> bool {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return false };
        let (disk, truth, least) = (&member.raft.disk, self.truth, self.plan.unit_ms() * 2);
        let grants = |id: u64| {
            if id == disk.id {
                return true;
            }
            let other =
                self.reached_as(coordinator, id).and_then(|other| self.quorum.coordinators[other].member.as_ref());
            other.is_some_and(|other| {
                let waits = calm && (other.raft.leads() || truth - other.raft.heard < least);
                !waits && other.raft.would_grant(truth, disk.last())
            })
        };
        member.up
            && disk.started
            && member.raft.may_stand()
            && member.raft.membership().is_some_and(|members| members.decides(grants))
    }

    /// Sends a coordinator's messages to the addresses in its log; `back`: the process that asked, by its number.
    pub(super) fn carry(&mut self, coordinator: usize, back: Option<(u64, usize)>, said: Vec<(u64, Body)>) {
        for (to, body) in said {
            let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
            let expected = member.raft.disk.expected.get(&to).map(String::as_str);
            let address = || member.raft.membership().and_then(|members| members.address(to)).or(expected);
            let there = match back {
                Some((id, asked)) if id == to => Some(asked),
                _ => address().and_then(|address| self.coordinator_at(address)),
            };
            if let Some(there) = there {
                self.post(coordinator, there, to, body);
            }
        }
    }

    /// Passes a message to the network.
    pub(super) fn post(&mut self, coordinator: usize, there: usize, to: u64, body: Body) {
        let own = &self.quorum.coordinators[coordinator];
        let Some(member) = &own.member else { return };
        if own.is_isolated(self.truth) || self.quorum.down_until > self.truth {
            return;
        }
        let message = Message { from: member.raft.disk.id, storage: member.raft.disk.storage, to, body };
        let event = Event::QuorumMessage { coordinator: there, from: coordinator, message: Box::new(message) };
        self.send(End::Coordinator(coordinator), End::Coordinator(there), event);
    }

    /// Handles a message from another coordinator.
    pub(crate) fn on_quorum_message(&mut self, coordinator: usize, from: usize, message: Message) {
        let Message { from: id, storage, to, body } = message;
        let own = &self.quorum.coordinators[coordinator];
        let Some(member) = own.member.as_ref().filter(|member| member.up && member.raft.disk.id == to) else { return };
        if own.is_isolated(self.truth) || self.quorum.down_until > self.truth || id == to {
            return;
        }
        let (started, expected) = (member.raft.disk.started, member.raft.disk.expected.keys().copied().collect());
        let known = self.acquaintances(coordinator);
        match body {
            Body::Hello { subject } => {
                if !started || known.names_nobody() {
                    return;
                }
                let retired = |id: u64| own.state.coordinators.retired.contains_key(&id);
                let standing = known.standing(id, Some(storage), retired(id));
                let subject =
                    subject.map(|(id, storage)| (id, storage, known.standing(id, Some(storage), retired(id))));
                self.coverage.other_directories_told += u64::from(standing == CoordinatorStanding::OtherDirectory);
                self.post(coordinator, from, id, Body::Known { asked: storage, standing, subject });
            }
            Body::Known { .. } => {
                self.coverage.coordinators_vouched += u64::from(self.is_news(coordinator, &body));
                self.hear(coordinator, from, id, body);
            }
            _ if !started => {}
            body => match known.hears(to, id, storage, &expected) {
                Ok(()) => self.hear(coordinator, from, id, body),
                Err(CoordinatorRefusal::Stranger | CoordinatorRefusal::Unexpected) => {
                    if let Some(member) = &mut self.quorum.coordinators[coordinator].member {
                        member.raft.strangers.insert(id, storage);
                    }
                }
                Err(CoordinatorRefusal::OtherDirectory) => {}
            },
        }
    }

    fn is_news(&self, coordinator: usize, body: &Body) -> bool {
        use archon_coordinator_core::CoordinatorStanding::Member;
        let member = self.quorum.coordinators[coordinator].member.as_ref();
        match (member, body) {
            (Some(member), Body::Known { subject: Some((id, _, Member)), .. }) => !member.raft.vouched.contains_key(id),
            _ => false,
        }
    }

    fn hear(&mut self, coordinator: usize, from: usize, id: u64, body: Body) {
        let truth = self.truth;
        let founder = self.answers_founder(coordinator, &body);
        let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
        member.raft.disk.started |= founder;
        let said = member.raft.take(truth, id, body);
        self.carry(coordinator, Some((id, from)), said);
        self.follow(coordinator);
    }

    /// Processes the changes of a coordinator's quorum state.
    pub(super) fn follow(&mut self, coordinator: usize) {
        let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
        let (leads, term) = (member.raft.leads(), member.raft.disk.term);
        let elected = leads && member.led != term;
        if elected {
            member.led = term;
            member.waiting.clear();
            member.steps_after = (0, 0);
        }
        if !leads {
            member.waiting.clear();
        }
        self.check_member(coordinator, elected);
        if elected {
            self.coverage.terms += 1;
            if term >= self.quorum.term {
                (self.quorum.term, self.quorum.leader) = (term, Some(coordinator));
            }
            self.note(|| format!("coordinator {coordinator} leads in term {term}"));
        }
        self.take_committed(coordinator);
        self.apply_committed(coordinator);
        self.attend_session(coordinator);
    }

    /// Commits the entries that this coordinator knows to be committed.
    fn take_committed(&mut self, coordinator: usize) {
        loop {
            let next = self.quorum.log.len() + 1;
            let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
            let entry = member.raft.disk.entry(next).filter(|_| next <= member.raft.commit()).cloned();
            let term = member.raft.disk.term;
            let Some(entry) = entry.filter(|_| self.violation.is_none()) else { return };
            self.checks.committed_in.push(term);
            self.append(entry);
        }
    }

    /// Starts a session once the leader has applied the first entry of its term, and ends it some time after the
    /// leadership.
    fn attend_session(&mut self, coordinator: usize) {
        let now = self.coordinator_now(coordinator);
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(member) = &own.member else { return };
        let (leads, term) = (member.raft.leads(), member.raft.disk.term);
        let begun = member.raft.disk.term_at(own.applied) == Some(term);
        let led = own.session.as_ref().map(|session| session.term.number());
        if leads && led != Some(term) && begun {
            own.session = Some(Session::new(term, now));
            self.wake_session(coordinator);
        } else if !leads && led.is_some() {
            if self.quorum.leader == Some(coordinator) {
                self.quorum.leader = None;
            }
            let delay = self.random.between(1, 20);
            self.after(delay, Event::Depose { coordinator });
        }
    }

    /// Appends the oldest pending proposal of this coordinator to its log, if it leads.
    pub(super) fn append_as_member(&mut self, coordinator: usize) {
        let truth = self.truth;
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(UnderWay { proposal, .. }) = own.under_way.pop_front() else { return };
        let Some(member) = own.member.as_mut().filter(|member| member.up && member.raft.leads()) else { return };
        let Proposal { term, commands, reply } = proposal;
        let claimed = claimed(&commands);
        let batch = batch(member.raft.disk.id, truth, term, commands);
        let entry_term = member.raft.disk.term;
        let place = member.raft.disk.end() + 1;
        member.waiting.insert(place, WaitingCaller { entry_term, term, reply, claimed });
        let said = member.raft.propose(EntryContent::Batch(batch));
        self.carry(coordinator, None, said);
        self.follow(coordinator);
    }

    /// Answers the callers of entries that are now applied.
    pub(super) fn answer_waiting(&mut self, coordinator: usize, answered: Vec<EntryResult>) {
        for (WaitingCaller { term, reply, claimed, .. }, responses) in answered {
            self.answer_proposal(coordinator, term, reply, claimed.as_deref(), &responses);
        }
    }
}
