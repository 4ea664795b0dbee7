//! An operator that changes the members of the quorum during a run (rules 57 to 59).

use crate::coordinator::{StartReason, first_address};
use crate::event::{CoordinatorMessage, Event};
use crate::raft::Disk;
use crate::world::World;
use archon_coordinator_core::{Newcomer, Wish, check_cancel_quorum_change, check_quorum_change, majority};
use archon_types::{QuorumChange, StorageId};
use uuid::Uuid;

/// Maximum number of coordinator machines in a run.
const MACHINES_MAX: usize = 14;
/// Minimum number of voters at the end.
const VOTERS_WANTED: usize = 3;

impl World {
    /// Returns the coordinators that a machine knows: the first ones, which its operator configured, and the last ones
    /// it was sent.
    pub(crate) fn coordinators_known_to(&self, machine: usize) -> Vec<usize> {
        if !self.plan.changes_quorum {
            return (0..crate::coordinator::quorum::COORDINATORS).collect();
        }
        let first = (0..crate::coordinator::quorum::COORDINATORS).map(first_address);
        let named = self.changer.named.get(&machine).into_iter().flatten().cloned();
        let mut known: Vec<usize> = named.chain(first).filter_map(|address| self.coordinator_at(&address)).collect();
        known.sort_unstable();
        known.dedup();
        known
    }

    /// Returns the coordinator to try first.
    pub(crate) fn first_guess(&self, machine: usize, drawn: usize) -> usize {
        let known = self.coordinators_known_to(machine);
        known.get(drawn % known.len().max(1)).copied().unwrap_or(drawn)
    }

    /// Returns the coordinator to try after `guess`, which does not lead and may have named the leader.
    pub(crate) fn next_guess(&self, machine: usize, guess: usize, leader: Option<usize>) -> usize {
        let known = self.coordinators_known_to(machine);
        let next = known.iter().find(|number| **number > guess).or(known.first()).copied();
        leader.or(next).unwrap_or(guess)
    }

    /// Returns the leader that a coordinator knows.
    pub(crate) fn known_leader(&self, coordinator: usize) -> Option<usize> {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return self.quorum.leader };
        let address = member.raft.membership()?.address(member.raft.leader?)?;
        self.coordinator_at(address).filter(|leader| *leader != coordinator)
    }

    /// Records coordinator addresses at a machine, which then turns to their sender: it leads.
    pub(crate) fn hear_coordinators(&mut self, machine: usize, by: usize, named: Vec<String>) {
        self.changer.note_named(machine, named);
        match self.worker_at(machine) {
            Some(worker) => self.workers.turn_to(worker, by),
            None => self.hosts[machine].process.iter_mut().for_each(|process| process.guess = by),
        }
    }

    /// Sends the coordinator addresses to a machine, beside a push or a heartbeat answer.
    pub(crate) fn name_coordinators(&mut self, coordinator: usize, host: usize) {
        if !self.plan.changes_quorum {
            return;
        }
        let members = &self.quorum.coordinators[coordinator].state.coordinators.members;
        let named: Vec<String> = members.values().map(|member| member.address.clone()).collect();
        let message = CoordinatorMessage::Coordinators { by: coordinator, named };
        self.send_to_host(coordinator, host, message);
    }

    /// Orders a change of the quorum, and schedules the next one.
    pub(crate) fn reorganise(&mut self) {
        let unit = self.plan.unit_ms();
        let delay = self.changer.random.between(unit, unit * 14);
        self.after(delay, Event::Reorganise);
        if self.healing {
            return;
        }
        let Some(leader) = self.quorum.leader else { return };
        let members = &self.quorum.coordinators[leader].state.coordinators.members;
        let numbers = |voter: bool| -> Vec<u64> {
            members.iter().filter(|(_, member)| member.voter == voter).map(|(id, _)| *id).collect()
        };
        let (voters, learners) = (numbers(true), numbers(false));
        let all: Vec<u64> = members.keys().copied().collect();
        let random = &mut self.changer.random;
        let (voter, learner, any) = (random.pick(&voters), random.pick(&learners), random.pick(&all));
        let change = match random.below(14) {
            0..=4 => return self.add_newcomer(leader),
            5 => learner.map(|id| QuorumChange::Promote { id }),
            6 => voter.map(|id| QuorumChange::Demote { id }),
            7 | 8 => any.map(|id| QuorumChange::Remove { id }),
            9 | 10 => voter.zip(learner).map(|(old, new)| QuorumChange::Replace { old, new }),
            11 => return self.cancel_quorum_change(leader),
            _ => return self.transfer_lead(leader, voter),
        };
        let force = self.changer.random.below(3) == 0;
        if let Some(change) = change {
            self.order_quorum_change(leader, &change, force);
        }
    }

    fn order_quorum_change(&mut self, leader: usize, change: &QuorumChange, force: bool) {
        let health = self.quorum_health(leader);
        let coordinator = &self.quorum.coordinators[leader];
        if coordinator.session.is_none() {
            return;
        }
        match check_quorum_change(&coordinator.state, &health, change, force) {
            // The operator does not count on a machine that it knows to be lost or moved.
            Ok(Some(_)) if !self.bears(None, &[Wish::Change(change.clone())]) => {}
            Ok(Some(command)) => {
                self.note(|| format!("an operator wants: {change}"));
                self.say(command);
            }
            Ok(None) => {}
            Err(_) => self.coverage.quorum_changes_refused += 1,
        }
    }

    fn cancel_quorum_change(&mut self, leader: usize) {
        if let Ok(command) = check_cancel_quorum_change(&self.quorum.coordinators[leader].state) {
            self.say(command);
        }
    }

    fn transfer_lead(&mut self, leader: usize, to: Option<u64>) {
        if let Some(to) = to {
            let handed = self.give_way(leader, &[to].into());
            self.coverage.leads_transferred += u64::from(handed);
        }
    }

    /// Starts another coordinator, usually with a new number and directory.
    fn add_newcomer(&mut self, leader: usize) {
        if self.quorum.coordinators.len() >= MACHINES_MAX {
            return;
        }
        let coordinators = &self.quorum.coordinators[leader].state.coordinators;
        let (next, retired) = (coordinators.next_id(), coordinators.retired.keys().copied().collect::<Vec<u64>>());
        let members: Vec<(u64, StorageId)> =
            coordinators.members.iter().map(|(id, member)| (*id, member.storage)).collect();
        let fresh = StorageId::new(Uuid::from_u128(self.unique()));
        let random = &mut self.changer.random;
        let other = random.pick(&members);
        let (id, storage) = match (random.below(8), random.pick(&retired), other) {
            // A retired number, one that belongs to another directory, a copy of one.
            (0 | 1, Some(retired), _) => (retired, fresh),
            (2, _, Some((member, _))) => (member, fresh),
            (3, _, Some((_, storage))) => (next, storage),
            _ => (next, fresh),
        };
        let voter = random.below(3) > 0;
        let coordinator = self.add_coordinator(Disk::new(id, storage), StartReason::Joins { voter });
        self.note(|| format!("coordinator {coordinator} is to join under number {id}"));
        self.start_coordinator(coordinator);
    }

    /// After the faults, cancels impossible changes, replaces lost members, and restores enough voters.
    pub(crate) fn mend_quorum(&mut self) {
        if !self.plan.changes_quorum {
            return;
        }
        self.make_lease_table_if_any();
        self.end_forgotten_newcomers();
        self.name_present_coordinators();
        let Some(leader) = self.quorum.leader else { return };
        let coordinators = self.quorum.coordinators[leader].state.coordinators.clone();
        let heard = self.quorum_health(leader).heard;
        let lost = |id: u64| coordinators.members.get(&id).is_some_and(|member| !self.holds(id, member.storage, None));
        let hangs = match coordinators.pending.as_ref().map(|pending| &pending.wish) {
            Some(Wish::Join(Newcomer { id, storage, .. })) => {
                // If started elsewhere meanwhile, it cannot announce that before the change is cancelled.
                !self.holds(*id, *storage, None) || self.is_moving(*id, *storage)
            }
            Some(Wish::Change(QuorumChange::Promote { id } | QuorumChange::Replace { new: id, .. })) => {
                let storage = coordinators.members.get(id).map(|member| member.storage);
                lost(*id) || storage.is_some_and(|storage| self.is_moving(*id, storage))
            }
            _ => false,
        };
        if hangs {
            return self.cancel_quorum_change(leader);
        }
        if coordinators.pending.is_some() {
            return;
        }
        let learner =
            coordinators.members.iter().find(|(id, member)| !member.voter && !lost(**id) && heard.contains(id));
        let learner = learner.map(|(id, _)| *id);
        let gone = coordinators.members.keys().copied().find(|id| lost(*id));
        let change = match (gone, learner) {
            (Some(old), Some(new)) if coordinators.members[&old].voter => QuorumChange::Replace { old, new },
            (Some(id), _) => QuorumChange::Remove { id },
            (None, Some(id)) if coordinators.voters().len() < VOTERS_WANTED => QuorumChange::Promote { id },
            _ => return,
        };
        self.order_quorum_change(leader, &change, true);
    }

    /// Configures the current coordinators at members that were away while all coordinators they knew left.
    fn name_present_coordinators(&mut self) {
        let members = self.quorum.state.coordinators.members.values();
        let present: Vec<String> = members.map(|member| member.address.clone()).collect();
        let machines = self.hosts.len() + self.workers.count();
        (0..machines).for_each(|machine| self.changer.note_named(machine, present.clone()));
    }

    /// Ends newcomers that can no longer be admitted: those notified of an admission that was cancelled, and
    /// those that were away while all members they knew left or moved. The latter, whether still members or not, have
    /// no member left to vouch for the others or to report their removal.
    fn end_forgotten_newcomers(&mut self) {
        let coordinators = &self.quorum.state.coordinators;
        let wanted = |id: u64| match coordinators.pending.as_ref().map(|pending| &pending.wish) {
            Some(Wish::Join(newcomer)) => newcomer.id == id,
            _ => false,
        };
        let forgotten = |number: &usize| {
            let member = self.quorum.coordinators[*number].member.as_ref();
            member.is_some_and(|member| {
                let disk = &member.raft.disk;
                let known = |id: &u64| coordinators.members.get(id).is_some_and(|known| known.storage == disk.storage);
                let reaches = coordinators.members.iter().any(|(id, now)| {
                    let named = member.raft.membership().and_then(|members| members.address(*id));
                    let told = disk.expected.get(id).map(String::as_str).filter(|_| named.is_none());
                    let there = named.or(told) == Some(now.address.as_str());
                    *id != disk.id && there && self.holds(*id, now.storage, None)
                });
                let voters = coordinators.voters();
                let held = |id: &&u64| {
                    coordinators.members.get(id).is_some_and(|other| self.holds(**id, other.storage, Some(*number)))
                };
                let alone = voters.iter().filter(held).count() >= majority(voters.len());
                let left = if known(&disk.id) { !reaches && alone } else { !reaches || disk.end() == 0 };
                member.is_whole() && disk.started && !wanted(disk.id) && left
            })
        };
        // One at a time: each removal changes what the others can bear.
        if let Some(number) = (0..self.quorum.coordinators.len()).find(forgotten) {
            self.end_coordinator(number);
        }
    }
}
