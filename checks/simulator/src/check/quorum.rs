//! Q: entries committed by a majority of the coordinators stay; no leader lacks any of them, and no term has two
//! leaders.

use crate::check::violation::Violation;
use crate::raft::Membership;
use crate::world::World;
use archon_coordinator_core::CATCH_UP_ENTRIES;
use std::sync::Arc;

impl World {
    /// Checks a member after it acted; `elected`: it leads from now on.
    pub(crate) fn check_member(&mut self, coordinator: usize, elected: bool) {
        let checked = self.checked_member(coordinator, elected);
        self.judge(checked);
    }

    fn checked_member(&mut self, coordinator: usize, elected: bool) -> Result<(), Violation> {
        let quorum = |detail: String| Err(Violation::Quorum { detail });
        let Some(member) = &self.quorum.coordinators[coordinator].member else { return Ok(()) };
        let (raft, disk) = (&member.raft, &member.raft.disk);
        if let Some(place) = raft.cut_committed {
            return quorum(format!("coordinator {} gives up entry {place}, which was committed", disk.id));
        }
        if elected {
            let term = disk.term;
            let other = self.checks.led.insert(term, coordinator).filter(|other| *other != coordinator);
            if let Some(other) = other {
                return quorum(format!("the processes {other} and {coordinator} both lead in term {term}"));
            }
        }
        // A leader holds everything that leaders of earlier terms have committed; other members hold what they know to
        // be committed.
        let committed = self.quorum.entries() as usize;
        let earlier = self.checks.committed_in.partition_point(|term| *term < disk.term);
        let from =
            if elected { 1 } else { self.checks.compared.get(&(coordinator, member.boots)).map_or(1, |at| at + 1) };
        let upto = if elected { earlier } else { raft.commit().min(committed) };
        for place in from..=upto {
            let same = match (self.quorum.entry(place), disk.entry(place)) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                _ => false,
            };
            if !same {
                return quorum(format!("coordinator {} has another entry {place} than is committed, or none", disk.id));
            }
        }
        self.checks.compared.insert((coordinator, member.boots), upto.max(from.saturating_sub(1)));
        Ok(())
    }

    /// Checks that each new voter lacks at most the entries in flight. A directory that was just lost is exempt.
    pub(crate) fn check_comes(&mut self, coordinator: usize, comes: &[u64], members: &Membership) {
        let end = self.quorum.coordinators[coordinator].member.as_ref().map_or(0, |member| member.raft.disk.end());
        let has = |id: u64| {
            let others = self.quorum.coordinators.iter().filter_map(|other| other.member.as_ref());
            // A copy of it that was refused and ended stays, and does not vote.
            let own = others
                .filter(|other| other.is_whole())
                .filter(|other| other.raft.disk.id == id && Some(other.raft.disk.storage) == members.directory(id));
            own.map(|own| own.raft.disk.end()).max().unwrap_or(end)
        };
        let lacking = comes.iter().find(|id| (end.saturating_sub(has(**id))) as u64 > CATCH_UP_ENTRIES);
        if let Some(id) = lacking {
            let detail = format!("coordinator {id} is to vote, and has {} of {end} entries", has(*id));
            self.judge(Err(Violation::Quorum { detail }));
        }
    }

    /// Returns what the quorum still lacks after the faults.
    pub(crate) fn missing_in_quorum(&self) -> Option<String> {
        if !self.plan.changes_quorum {
            return None;
        }
        self.lacking_in_quorum().map(|lacking| format!("{lacking}; {}", self.quorum_in_words()))
    }

    fn lacking_in_quorum(&self) -> Option<String> {
        let Some(leader) = self.quorum.leader else { return Some("no coordinator leads".to_owned()) };
        let leading = &self.quorum.coordinators[leader];
        let (Some(_), Some(of_leader)) = (&leading.session, &leading.member) else {
            return Some(format!("coordinator {leader} has no session"));
        };
        let coordinators = &self.quorum.state.coordinators;
        if coordinators.joint || coordinators.pending.is_some() {
            return Some(format!("a change is under way: {:?}", coordinators.pending));
        }
        let at = of_leader.raft.disk.membership().map(|(at, _)| at);
        for (id, member) in &coordinators.members {
            let others = self.quorum.coordinators.iter().filter_map(|other| other.member.as_ref());
            let own = others.filter(|other| other.raft.disk.id == *id && other.raft.disk.storage == member.storage);
            let Some(own) = own.into_iter().find(|own| own.is_whole()) else {
                return Some(format!("nothing is left of coordinator {id}, a voter: {}", member.voter));
            };
            let behind = of_leader.raft.disk.end().saturating_sub(own.raft.commit());
            if !own.up || behind as u64 > CATCH_UP_ENTRIES || own.raft.disk.membership().map(|(at, _)| at) != at {
                return Some(format!("coordinator {id} lacks {behind} entries, and runs: {}", own.up));
            }
        }
        let strange = self.quorum.coordinators.iter().enumerate().find(|(_, other)| {
            other.member.as_ref().is_some_and(|other| {
                let disk = &other.raft.disk;
                let known = coordinators.members.get(&disk.id).is_some_and(|known| known.storage == disk.storage);
                other.up && disk.started && !known
            })
        });
        strange.map(|(number, _)| format!("coordinator {number} runs and is no member"))
    }

    /// Describes every remaining coordinator.
    fn quorum_in_words(&self) -> String {
        let text = |(number, other): (usize, &crate::coordinator::quorum::Coordinator)| {
            let member = other.member.as_ref().filter(|member| member.is_whole())?;
            let disk = &member.raft.disk;
            Some(format!(
                "{} in process {number} at {}: {:?} of term {}, {} entries of {}, up {}, started {}",
                disk.id,
                member.address,
                member.raft.role,
                disk.term,
                member.raft.commit(),
                disk.end(),
                member.up,
                disk.started
            ))
        };
        let texts: Vec<String> = self.quorum.coordinators.iter().enumerate().filter_map(text).collect();
        texts.join("; ")
    }
}
