//! Faults of coordinators with changing membership, and of their directories.

use crate::coordinator::quorum::COORDINATORS;
use crate::coordinator::{StartReason, first_address};
use crate::event::Event;
use crate::network::{End, NetworkCut};
use crate::raft::{Disk, EntryContent};
use crate::world::World;
use archon_coordinator_core::{Command, Members, Wish, majority};
use archon_types::StorageId;
use uuid::Uuid;

impl World {
    /// Makes another member lead: it stands while others still hear the former leader, or is asked to.
    pub(crate) fn have_another_lead(&mut self) {
        if self.quorum.down_until > self.truth {
            let delay = self.quorum.down_until - self.truth + self.changer.random.between(20, 200);
            return self.after(delay, Event::Elect);
        }
        let able: Vec<usize> =
            (0..self.quorum.coordinators.len()).filter(|number| self.could_win(*number, false)).collect();
        if let Some(chosen) = self.changer.random.pick(&able).filter(|chosen| self.quorum.leader != Some(*chosen)) {
            self.stand(chosen, false);
        }
    }

    /// Injects a fault, and schedules the next one.
    pub(crate) fn quorum_fault(&mut self) {
        let unit = self.plan.unit_ms();
        let delay = self.changer.random.between(unit, unit * 18);
        self.after(delay, Event::QuorumFault);
        if self.healing {
            return;
        }
        let running: Vec<usize> = (0..self.quorum.coordinators.len()).filter(|number| self.is_up(*number)).collect();
        let Some(coordinator) = self.changer.random.pick(&running) else { return };
        let coordinator = self.quorum.leader.filter(|_| self.changer.random.below(4) == 0).unwrap_or(coordinator);
        match self.changer.random.below(16) {
            0..=4 => {
                self.coverage.coordinators_killed += 1;
                self.kill_coordinator(coordinator);
                self.bring_back(coordinator);
            }
            5 | 6 => self.wipe_coordinator(coordinator),
            7 => self.burn_coordinator(coordinator),
            8 | 9 => self.copy_coordinator(coordinator),
            10 | 11 => self.move_coordinator(coordinator),
            12 => {
                let until = self.truth + self.changer.random.between(unit, unit * 30);
                self.quorum.coordinators[coordinator].isolated = Some((self.truth, until));
            }
            13 => {
                let until = self.truth + self.changer.random.between(unit, unit * 30);
                self.quorum.coordinators[coordinator].paused_until = until;
            }
            14 => self.lag_behind_a_loss(&running),
            _ => self.part_two(coordinator, &running),
        }
    }

    fn bring_back(&mut self, coordinator: usize) {
        let unit = self.plan.unit_ms();
        let most = if self.changer.random.below(3) == 0 { unit * 60 } else { unit * 8 };
        let down = self.changer.random.between(1, most);
        self.after(down, Event::StartCoordinator { coordinator });
    }

    /// Cuts two coordinators from each other, or in one direction.
    fn part_two(&mut self, one: usize, running: &[usize]) {
        let unit = self.plan.unit_ms();
        let random = &mut self.changer.random;
        let Some(other) = random.pick(running) else { return };
        let (since, until) = (self.truth, self.truth + random.between(unit, unit * 40));
        let (one, other) = (vec![End::Coordinator(one)], vec![End::Coordinator(other)]);
        if random.below(3) > 0 {
            self.network.cut(NetworkCut { from: one.clone(), to: other.clone(), since, until });
        }
        self.network.cut(NetworkCut { from: other, to: one, since, until });
    }

    /// Stops the leader of a change in the middle of it, for a while.
    pub(crate) fn lose_leader(&mut self, coordinator: usize) {
        let unit = self.plan.unit_ms();
        if self.healing || self.quorum.leader != Some(coordinator) {
            return;
        }
        let until = self.truth + self.changer.random.between(unit * 2, unit * 20);
        match self.changer.random.below(3) {
            0 => {
                self.kill_coordinator(coordinator);
                self.bring_back(coordinator);
            }
            1 => self.quorum.coordinators[coordinator].paused_until = until,
            _ => self.quorum.coordinators[coordinator].isolated = Some((self.truth, until)),
        }
    }

    /// Destroys its directory; it is restarted with an empty one, which its peers refuse.
    fn wipe_coordinator(&mut self, coordinator: usize) {
        if !self.may_lose(coordinator) {
            return;
        }
        let storage = StorageId::new(Uuid::from_u128(self.unique()));
        self.kill_coordinator(coordinator);
        self.coverage.coordinators_wiped += 1;
        self.note(|| format!("the directory of coordinator {coordinator} is lost"));
        if let Some(member) = &mut self.quorum.coordinators[coordinator].member {
            member.raft.disk = Disk::new(member.raft.disk.id, storage);
            if member.begins == StartReason::Founder {
                // It is started as the first time, with their list.
                let founders = 0..COORDINATORS;
                member.raft.disk.expected = founders.map(|slot| (slot as u64 + 1, first_address(slot))).collect();
            }
            member.moved = false;
        }
        self.empty_state(coordinator);
        self.bring_back(coordinator);
    }

    /// Cuts one off for a while, so that it lacks entries; when it is back, another one has lost its directory, and the
    /// leader is cut off in turn. If the wiped one could vote, the lagging one would be elected.
    fn lag_behind_a_loss(&mut self, running: &[usize]) {
        let unit = self.plan.unit_ms();
        let Some(leader) = self.quorum.leader else { return };
        let others: Vec<usize> = running.iter().copied().filter(|other| *other != leader).collect();
        let random = &mut self.changer.random;
        let (Some(lags), Some(lost)) = (random.pick(&others), random.pick(&others)) else { return };
        if lags == lost {
            return;
        }
        let away = random.between(unit * 2, unit * 8);
        self.quorum.coordinators[lags].isolated = Some((self.truth, self.truth + away));
        self.after(away, Event::WipeAmid { coordinator: lost, leader });
    }

    pub(crate) fn wipe_amid(&mut self, coordinator: usize, leader: usize) {
        let unit = self.plan.unit_ms();
        if self.healing || self.quorum.leader != Some(leader) {
            return;
        }
        let until = self.truth + self.changer.random.between(unit * 10, unit * 30);
        self.quorum.coordinators[leader].isolated = Some((self.truth, until));
        self.wipe_coordinator(coordinator);
        self.after(1, Event::StartCoordinator { coordinator });
    }

    /// Destroys its machine permanently.
    fn burn_coordinator(&mut self, coordinator: usize) {
        if !self.may_lose(coordinator) {
            return;
        }
        self.end_coordinator(coordinator);
        self.coverage.coordinators_burnt += 1;
        self.note(|| format!("the machine of coordinator {coordinator} is gone"));
    }

    /// Copies the directory of a running one, and starts the copy on another machine.
    fn copy_coordinator(&mut self, coordinator: usize) {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
        let disk = member.raft.disk.clone();
        // One at another address than the log's is not found there.
        let recorded = member.raft.membership().and_then(|members| members.address(disk.id));
        if recorded != Some(member.address.as_str()) || !disk.started {
            return;
        }
        let copy = self.add_coordinator(disk, StartReason::Founder);
        self.start_coordinator(copy);
    }

    /// Restarts it at another address. The others do not reach it until a leader has committed that, so they must be
    /// enough.
    fn move_coordinator(&mut self, coordinator: usize) {
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return };
        let own = member.raft.membership().and_then(|members| members.address(member.raft.disk.id));
        if own.is_none() || !self.may_lose(coordinator) {
            return;
        }
        self.kill_coordinator(coordinator);
        self.changer.addresses += 1;
        let address = format!("c{coordinator}-{}:7000", self.changer.addresses);
        self.note(|| format!("coordinator {coordinator} is reached at {address} from now on"));
        if let Some(member) = &mut self.quorum.coordinators[coordinator].member {
            (member.address, member.moved) = (address, true);
        }
        self.bring_back(coordinator);
    }

    /// Returns true if an intact directory belongs to this member, other than that of `without`.
    pub(crate) fn holds(&self, id: u64, storage: StorageId, without: Option<usize>) -> bool {
        let holds = |number: usize| {
            let member = self.quorum.coordinators[number].member.as_ref();
            member.is_some_and(|member| {
                let disk = &member.raft.disk;
                member.is_whole() && disk.id == id && disk.storage == storage
            })
        };
        (0..self.quorum.coordinators.len()).any(|number| Some(number) != without && holds(number))
    }

    /// Returns true if a coordinator's directory may be lost. A quorum without a majority is covered by
    /// [`crate::operators::recovery`].
    fn may_lose(&self, coordinator: usize) -> bool {
        self.bears(Some(coordinator), &self.wishes())
    }

    /// Returns true if the quorum continues without one coordinator and with these wishes: of the voters that any log
    /// names, and of the voters to be, a majority must have its directory, know the others, and be at the address where
    /// those look for it.
    pub(crate) fn bears(&self, without: Option<usize>, wishes: &[Wish]) -> bool {
        let whole = |members: &Members, id: u64| {
            let storage = members.get(&id).map(|member| member.storage);
            storage.is_some_and(|storage| {
                self.holds(id, storage, without) && !self.is_moving(id, storage) && self.knows_members(id, storage)
            })
        };
        let decides = |members: &Members| {
            let voters: Vec<u64> = members.iter().filter(|(_, member)| member.voter).map(|(id, _)| *id).collect();
            voters.iter().filter(|id| whole(members, **id)).count() >= majority(voters.len())
        };
        let members = self.quorum.coordinators.iter().filter_map(|other| other.member.as_ref());
        members.filter(|member| member.is_whole()).filter_map(|member| member.raft.membership()).all(|membership| {
            let members = membership.members().0;
            membership.decides(|id| whole(&members, id)) && wishes.iter().all(|wish| decides(&wish.wanted(&members)))
        })
    }

    /// Returns the requested changes of the quorum, including those still in flight to the log.
    fn wishes(&self) -> Vec<Wish> {
        let wish = |command: &Command| match command {
            Command::ChangeQuorum { wish, .. } => Some(wish.clone()),
            _ => None,
        };
        let committed = self.quorum.entries() as usize;
        let mut wishes: Vec<Wish> =
            self.quorum.state.coordinators.pending.iter().map(|pending| pending.wish.clone()).collect();
        for coordinator in &self.quorum.coordinators {
            wishes.extend(coordinator.proposed().filter_map(wish));
            let Some(member) = &coordinator.member else { continue };
            for entry in member.raft.disk.entries_from(committed + 1, usize::MAX) {
                if let EntryContent::Batch(batch) = &entry.what {
                    wishes.extend(batch.commands.iter().filter_map(wish));
                }
            }
        }
        wishes
    }

    /// Returns true if this member's log contains the membership. Until then it may refuse members that it does not
    /// know, and once all members it knows are gone, none is left to vouch for the others (rule 59).
    fn knows_members(&self, id: u64, storage: StorageId) -> bool {
        let mut members = self.quorum.coordinators.iter().filter_map(|other| other.member.as_ref());
        members.any(|member| {
            let disk = &member.raft.disk;
            let at = disk.membership().map_or(0, |(at, _)| at);
            disk.id == id && disk.storage == storage && at >= self.quorum.members_at
        })
    }

    /// Returns true if this member runs at an address that no log contains yet.
    pub(crate) fn is_moving(&self, id: u64, storage: StorageId) -> bool {
        let mut members = self.quorum.coordinators.iter().filter_map(|other| other.member.as_ref());
        members.any(|member| {
            let disk = &member.raft.disk;
            member.moved && member.is_whole() && disk.id == id && disk.storage == storage
        })
    }

    /// Starts all remaining coordinators and connects them.
    pub(crate) fn heal_quorum(&mut self) {
        if !self.plan.changes_quorum {
            return;
        }
        for coordinator in 0..self.quorum.coordinators.len() {
            self.after(1, Event::StartCoordinator { coordinator });
        }
    }
}
