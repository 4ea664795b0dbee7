//! Life cycle of a coordinator process: joining, timer ticks, and end.

use super::Member;
use super::member::{StartReason, first_address};
use crate::clock::Clock;
use crate::coordinator::quorum::Coordinator;
use crate::event::{Event, Proposal};
use crate::mutant::ShellMutant;
use crate::raft::{Body, Disk};
use crate::world::World;
use archon_coordinator_core::{CoordinatorStanding, Newcomer, QuorumRefusal, check_join};
use archon_types::StorageId;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Handles a timer tick of a coordinator's process.
    pub(crate) fn quorum_tick(&mut self, coordinator: usize, boot: u64) {
        let (truth, unit) = (self.truth, self.plan.unit_ms());
        let own = &self.quorum.coordinators[coordinator];
        let Some(member) = own.member.as_ref().filter(|member| member.up && member.boots == boot) else { return };
        let disk = &member.raft.disk;
        let removed = own.state.coordinators.has_removed(disk.id, disk.storage);
        if member.raft.dismissed || removed {
            self.coverage.coordinators_dismissed += 1;
            self.note(|| format!("coordinator {coordinator} is told that it is no member, and ends"));
            return self.end_coordinator(coordinator);
        }
        let started = disk.started;
        let delay = self.changer.random.between(unit / 4, unit / 2);
        self.after(delay, Event::QuorumTick { coordinator, boot });
        if !started {
            return self.become_member(coordinator);
        }
        self.ask_about_strangers(coordinator);
        if self.quorum.coordinators[coordinator].member.as_ref().is_some_and(|member| member.raft.leads()) {
            return self.keep_leading(coordinator);
        }
        self.tell_address(coordinator);
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
        let silence = truth - member.raft.heard.min(truth);
        if silence > unit * 10 && self.changer.random.below(4) == 0 {
            // It may have been removed, which no further entry can report.
            self.ask_members(coordinator, None);
        }
        if silence > self.election_timeout_of(coordinator) {
            self.stand(coordinator, true);
        }
    }

    fn election_timeout_of(&self, coordinator: usize) -> u64 {
        self.quorum.coordinators[coordinator].member.as_ref().map_or(u64::MAX, |member| member.election_timeout)
    }

    /// Stands for election if it would win: terms do not rise in vain.
    pub(crate) fn stand(&mut self, coordinator: usize, calm: bool) {
        let unit = self.plan.unit_ms();
        let (truth, election_timeout) = (self.truth, self.changer.random.between(unit * 2, unit * 6));
        let wins = self.could_win(coordinator, calm);
        let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
        member.election_timeout = election_timeout;
        if wins {
            let said = member.raft.campaign(truth);
            self.carry(coordinator, None, said);
            self.follow(coordinator);
        } else {
            let (own, voters) = (member.raft.disk.id, member.raft.membership().map(|members| members.voters()));
            let others = voters.unwrap_or_default().into_iter().filter(|id| *id != own);
            let said = others.map(|id| (id, Body::Probe)).collect();
            self.carry(coordinator, None, said);
        }
    }

    fn keep_leading(&mut self, coordinator: usize) {
        let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
        let said = member.raft.tell();
        self.carry(coordinator, None, said);
        self.tell_address(coordinator);
        self.take_step(coordinator);
        let health = self.quorum_health(coordinator);
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
        let voters = member.raft.membership().map(|members| members.voters()).unwrap_or_default();
        if health.spare(&voters).is_none() && self.changer.random.below(4) == 0 {
            self.ask_members(coordinator, None);
        }
    }

    /// Asks known members about its own membership, and optionally that of another.
    fn ask_members(&mut self, coordinator: usize, subject: Option<(u64, StorageId)>) {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
        let own = member.raft.disk.id;
        let mut numbers: BTreeSet<u64> =
            member.raft.membership().map(|members| members.numbers().collect()).unwrap_or_default();
        if !numbers.contains(&own) {
            // The members in its log may all be gone.
            numbers.extend(member.raft.disk.expected.keys());
        }
        let asked = subject.map_or(own, |(id, _)| id);
        let others = numbers.into_iter().filter(|id| *id != own && *id != asked);
        let said = others.map(|id| (id, Body::Hello { subject })).collect();
        self.carry(coordinator, None, said);
    }

    fn ask_about_strangers(&mut self, coordinator: usize) {
        let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
        for (id, storage) in std::mem::take(&mut member.raft.strangers) {
            self.ask_members(coordinator, Some((id, storage)));
        }
    }

    /// Starts membership of a process with an unused directory: it requests admission, or asks the first ones for their
    /// members.
    fn become_member(&mut self, coordinator: usize) {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
        let disk = &member.raft.disk;
        let newcomer = match member.begins {
            StartReason::Founder => {
                let to: Vec<usize> =
                    (0..crate::coordinator::quorum::COORDINATORS).filter(|other| *other != coordinator).collect();
                for other in to {
                    let Some(there) = &self.quorum.coordinators[other].member else { continue };
                    let id = there.raft.disk.id;
                    self.post(coordinator, other, id, Body::Hello { subject: None });
                }
                return;
            }
            StartReason::Joins { voter } => {
                Newcomer { id: disk.id, address: member.address.clone(), storage: disk.storage, voter }
            }
        };
        match self.ask_to_join(coordinator, &newcomer) {
            Some(Ok(members)) => {
                self.note(|| format!("coordinator {coordinator} is let in under number {}", newcomer.id));
                let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
                (member.raft.disk.started, member.raft.disk.expected) = (true, members);
            }
            Some(Err(QuorumRefusal::UnderWay { .. })) | None => {}
            Some(Err(why)) => {
                self.coverage.joins_refused += 1;
                self.note(|| format!("coordinator {coordinator} is not let in: {why}"));
                self.end_coordinator(coordinator);
            }
        }
    }

    /// Asks the leader for admission, if reachable. Returns the members after the admission; `None` while it is
    /// pending.
    fn ask_to_join(
        &mut self,
        coordinator: usize,
        newcomer: &Newcomer,
    ) -> Option<Result<BTreeMap<u64, String>, QuorumRefusal>> {
        let leader =
            self.quorum.leader.filter(|leader| *leader == coordinator || self.connects(coordinator, *leader))?;
        let leading = &self.quorum.coordinators[leader];
        let term = leading.session.as_ref()?.term.number();
        match check_join(&leading.state, newcomer) {
            Ok(None) => {
                let members = leading.state.coordinators.members.iter();
                Some(Ok(members.map(|(id, member)| (*id, member.address.clone())).collect()))
            }
            Ok(Some(command)) => {
                // The commit takes a moment, during which the request is repeated.
                if self.changer.random.below(3) == 0 {
                    self.propose(leader, Proposal { term, commands: vec![command], reply: None });
                }
                None
            }
            Err(why) => Some(Err(why)),
        }
    }

    /// Reports its new address after a restart elsewhere.
    fn tell_address(&mut self, coordinator: usize) {
        let own = &self.quorum.coordinators[coordinator];
        let Some(member) = own.member.as_ref().filter(|member| member.moved) else { return };
        let disk = &member.raft.disk;
        let newcomer = Newcomer { id: disk.id, address: member.address.clone(), storage: disk.storage, voter: false };
        let known = own.state.coordinators.members.get(&newcomer.id);
        let told = known.is_some_and(|known| known.address == newcomer.address);
        if !told && self.changer.random.below(4) == 0 {
            drop(self.ask_to_join(coordinator, &newcomer));
        }
        if let Some(member) = self.quorum.coordinators[coordinator].member.as_mut().filter(|_| told) {
            member.moved = false;
            self.coverage.coordinators_moved += 1;
        }
    }

    /// Returns true for the answer that lets a founder with an empty directory take part.
    pub(super) fn answers_founder(&self, coordinator: usize, body: &Body) -> bool {
        let member = self.quorum.coordinators[coordinator].member.as_ref();
        let asks = member.is_some_and(|member| !member.raft.disk.started && member.begins == StartReason::Founder);
        asks && matches!(body, Body::Known { standing: CoordinatorStanding::Member, .. })
    }

    /// Kills its process; volatile state is lost.
    pub(crate) fn kill_coordinator(&mut self, coordinator: usize) {
        let own = &mut self.quorum.coordinators[coordinator];
        let Some(member) = own.member.as_mut().filter(|member| member.up) else { return };
        member.up = false;
        member.waiting.clear();
        own.session = None;
        own.under_way.clear();
        if self.quorum.leader == Some(coordinator) {
            self.quorum.leader = None;
        }
        self.note(|| format!("coordinator {coordinator} ends"));
    }

    /// Ends it permanently.
    pub(crate) fn end_coordinator(&mut self, coordinator: usize) {
        self.kill_coordinator(coordinator);
        if let Some(member) = &mut self.quorum.coordinators[coordinator].member {
            member.ended = true;
        }
    }

    /// Starts a coordinator's process, if none runs and its machine exists.
    pub(crate) fn start_coordinator(&mut self, coordinator: usize) {
        let (truth, unit) = (self.truth, self.plan.unit_ms());
        let copied = self.is_a_copy(coordinator) && !self.breaks(ShellMutant::CopyTakesPart);
        let election_timeout = self.changer.random.between(unit * 2, unit * 6);
        let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
        if member.up || !member.is_whole() {
            return;
        }
        if copied {
            member.ended = true;
            self.coverage.coordinator_copies_refused += 1;
            return self.note(|| format!("coordinator {coordinator} is a copy of one that runs, and ends"));
        }
        member.raft = member.raft.restarted(truth, unit * 4);
        member.up = true;
        member.boots += 1;
        (member.election_timeout, member.steps_after) = (election_timeout, (0, 0));
        let boot = member.boots;
        self.note(|| format!("coordinator {coordinator} starts"));
        self.after(1, Event::QuorumTick { coordinator, boot });
    }

    /// Returns true if another process answers in its name at its address in the log.
    fn is_a_copy(&self, coordinator: usize) -> bool {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return false };
        let disk = &member.raft.disk;
        let recorded = member.raft.membership().and_then(|members| members.address(disk.id));
        let there = recorded.and_then(|address| self.coordinator_at(address)).filter(|there| *there != coordinator);
        let other = there.and_then(|there| self.quorum.coordinators[there].member.as_ref());
        other.is_some_and(|other| other.up && other.raft.disk.id == disk.id && other.raft.disk.storage == disk.storage)
    }

    /// Drops its applied state.
    pub(crate) fn empty_state(&mut self, coordinator: usize) {
        let origin = self.quorum.origin.clone();
        let own = &mut self.quorum.coordinators[coordinator];
        (own.state, own.applied) = (origin, 0);
    }

    /// Adds another machine for a coordinator; its process is not started yet.
    pub(crate) fn add_coordinator(&mut self, disk: Disk, begins: StartReason) -> usize {
        let number = self.quorum.coordinators.len();
        let clock = Clock::draw(&mut self.changer.random);
        let member = Member::new(first_address(number), disk, begins);
        let origin = self.quorum.origin.clone();
        self.quorum.coordinators.push(Coordinator::new(clock, origin, Some(Box::new(member))));
        number
    }
}
