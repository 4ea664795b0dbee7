//! Membership changes by the leader, one step at a time, as in the product's `quorum_changes`.

use crate::event::{Event, Proposal};
use crate::mutant::ShellMutant;
use crate::raft::{Body, EntryContent};
use crate::world::World;
use archon_coordinator_core::CATCH_UP_ENTRIES;
use archon_coordinator_core::{Command, QuorumHealth, QuorumStep, next_step};
use std::collections::BTreeSet;

impl World {
    /// Returns the members' health in a leading coordinator's view.
    pub(crate) fn quorum_health(&self, coordinator: usize) -> QuorumHealth {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return QuorumHealth::default() };
        let (raft, truth, silence) = (&member.raft, self.truth, self.plan.unit_ms() * 6);
        let own = raft.disk.id;
        let numbers: Vec<u64> = raft.membership().map(|members| members.numbers().collect()).unwrap_or_default();
        let heard = |id: &u64| *id == own || raft.heard_from(*id).is_some_and(|at| at + silence >= truth);
        QuorumHealth {
            leader: own,
            heard: numbers.iter().copied().filter(heard).collect(),
            behind: numbers.iter().filter_map(|id| Some((*id, raft.behind(*id)? as u64))).collect(),
        }
    }

    /// Takes the next step of a pending change, if the state knows all members in use.
    pub(super) fn take_step(&mut self, coordinator: usize) {
        let (truth, unit) = (self.truth, self.plan.unit_ms());
        let own = &self.quorum.coordinators[coordinator];
        let (Some(member), Some(session)) = (&own.member, &own.session) else { return };
        let (term, (place, instant)) = (session.term.number(), member.steps_after);
        let applied = member.raft.disk.membership().is_some_and(|(at, _)| at <= own.applied);
        if term != member.raft.disk.term || own.applied < place || truth < instant || !applied {
            return;
        }
        let Some(step) = next_step(&own.state, &self.quorum_health(coordinator)) else { return };
        match step {
            QuorumStep::CatchUp(..) => self.coverage.catch_ups += 1,
            QuorumStep::Done => {
                let if_version = own.state.coordinators.version;
                let commands = vec![Command::EndQuorumChange { if_version, done: true }];
                self.pause_steps(coordinator, unit);
                self.propose(coordinator, Proposal { term, commands, reply: None });
            }
            QuorumStep::GiveWay(stay) => {
                self.coverage.leads_given_way += 1;
                self.pause_steps(coordinator, unit * 2);
                self.give_way(coordinator, &stay);
            }
            step => self.change_members(coordinator, step),
        }
    }

    fn pause_steps(&mut self, coordinator: usize, millis: u64) {
        let instant = self.truth + millis;
        if let Some(member) = &mut self.quorum.coordinators[coordinator].member {
            member.steps_after.1 = instant;
        }
    }

    /// Transfers leadership to the one of `among` nearest to the end of the log. Returns false if there is none.
    pub(crate) fn give_way(&mut self, coordinator: usize, among: &BTreeSet<u64>) -> bool {
        let health = self.quorum_health(coordinator);
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return false };
        let able = among.iter().filter(|id| **id != health.leader);
        let able = able.filter_map(|id| Some((health.behind(*id).filter(|behind| *behind <= CATCH_UP_ENTRIES)?, *id)));
        let Some((_, next)) = able.min() else { return false };
        let term = member.raft.disk.term;
        self.carry(coordinator, None, vec![(next, Body::TakeOver { term })]);
        true
    }

    /// Appends an entry about the members; the leader may fail before it is committed.
    fn change_members(&mut self, coordinator: usize, step: QuorumStep) {
        let joint = !self.breaks(ShellMutant::VotersWithoutJoint);
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
        let raft = &member.raft;
        let Some(members) = raft.membership().filter(|_| raft.members_are_committed()) else { return };
        let Some(after) = members.after(&step, joint) else { return };
        let comes: Vec<u64> = after.voters().difference(&members.voters()).copied().collect();
        let began = raft.disk.membership().and_then(|(at, _)| raft.disk.term_at(at));
        match &step {
            QuorumStep::LeaveJoint => {
                self.coverage.joints_left += 1;
                self.coverage.joints_left_by_another += u64::from(began != Some(raft.disk.term));
            }
            QuorumStep::AddLearner(..) => self.coverage.learners_added += 1,
            QuorumStep::SetVoters(_) => self.coverage.voters_changed += 1,
            QuorumStep::Forget(_) => self.coverage.coordinators_forgotten += 1,
            _ => {}
        }
        self.note(|| format!("coordinator {coordinator} changes the members: {step:?}"));
        self.check_comes(coordinator, &comes, &after);
        let Some(member) = &mut self.quorum.coordinators[coordinator].member else { return };
        member.steps_after.0 = member.raft.disk.end() + 1;
        let said = member.raft.propose(EntryContent::Members(after));
        self.carry(coordinator, None, said);
        self.follow(coordinator);
        if !self.healing && self.changer.random.below(5) == 0 {
            self.coverage.leaders_lost_changing += 1;
            let soon = self.changer.random.between(1, 12);
            self.after(soon, Event::LoseLeader { coordinator });
        }
    }
}
