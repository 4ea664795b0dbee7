//! A coordinator as a member of the quorum: its inputs and its answers.

use super::lead::Progress;
use super::{Body, Disk, Entry, Membership};
use archon_coordinator_core::CoordinatorStanding;
use archon_types::StorageId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Its role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Follower,
    Candidate,
    Leader,
}

/// Messages of a member, by receiver number.
pub(crate) type VoterMessages = Vec<(u64, Body)>;

/// A coordinator's state in the quorum: its directory, and its process's memory.
#[derive(Clone, Debug)]
pub(crate) struct Voter {
    pub(crate) disk: Disk,
    pub(crate) role: Role,
    /// The known leader.
    pub(crate) leader: Option<u64>,
    /// Position up to which the log is known to be committed.
    pub(super) commit: usize,
    /// Time of the last leader message or vote.
    pub(crate) heard: u64,
    /// It grants no vote before then.
    votes_from: u64,
    pub(super) votes: BTreeSet<u64>,
    pub(super) progress: BTreeMap<u64, Progress>,
    /// Coordinators that a member vouches for, and those to ask about.
    pub(crate) vouched: BTreeMap<u64, StorageId>,
    pub(crate) strangers: BTreeMap<u64, StorageId>,
    /// True if a member reported its removal, or another directory under its number.
    pub(crate) dismissed: bool,
    /// A committed entry that was removed.
    pub(crate) cut_committed: Option<usize>,
}

impl Voter {
    pub(crate) fn new(disk: Disk, now: u64, vote_pause: u64) -> Self {
        Self {
            disk,
            role: Role::Follower,
            leader: None,
            commit: 0,
            heard: now,
            votes_from: now + vote_pause,
            votes: BTreeSet::new(),
            progress: BTreeMap::new(),
            vouched: BTreeMap::new(),
            strangers: BTreeMap::new(),
            dismissed: false,
            cut_committed: None,
        }
    }

    /// Returns the next process with this directory: the commit position is on the disk as well.
    pub(crate) fn restarted(&self, now: u64, vote_pause: u64) -> Self {
        let commit = self.commit.min(self.disk.end());
        Self { commit, ..Self::new(self.disk.clone(), now, vote_pause) }
    }

    /// Returns a founder, whose log is committed as it is.
    pub(crate) fn founder(disk: Disk) -> Self {
        let commit = disk.end();
        Self { commit, ..Self::new(disk, 0, 0) }
    }

    pub(crate) fn commit(&self) -> usize {
        self.commit
    }

    pub(crate) fn leads(&self) -> bool {
        self.role == Role::Leader
    }

    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.disk.membership().map(|(_, membership)| membership)
    }

    pub(super) fn step_down(&mut self, term: u64) {
        if term > self.disk.term {
            (self.disk.term, self.disk.voted, self.leader) = (term, None, None);
            self.role = Role::Follower;
        }
    }

    /// Handles a message of an accepted coordinator.
    pub(crate) fn take(&mut self, now: u64, from: u64, body: Body) -> VoterMessages {
        let answer = match body {
            Body::Append { term, before, entries, commit } => {
                let upto = self.append(now, (from, term), before, entries, commit);
                Body::Appended { term: self.disk.term, upto }
            }
            Body::Appended { term, upto } => return self.appended(now, from, term, upto),
            Body::AskVote { term, last } => {
                let granted = self.grants(now, (from, term), last);
                Body::Vote { term: self.disk.term, granted }
            }
            Body::Vote { term, granted } => return self.voted(from, term, granted),
            Body::TakeOver { term } if term == self.disk.term && self.leader == Some(from) => {
                return self.campaign(now);
            }
            Body::TakeOver { .. } | Body::Hello { .. } | Body::Probe => return Vec::new(),
            // An answer to a process with another directory is ignored.
            Body::Known { asked, .. } if asked != self.disk.storage => return Vec::new(),
            Body::Known { standing, subject, .. } => {
                self.dismissed |=
                    matches!(standing, CoordinatorStanding::Retired | CoordinatorStanding::OtherDirectory);
                if let Some((id, storage, CoordinatorStanding::Member)) = subject {
                    self.vouched.insert(id, storage);
                }
                return Vec::new();
            }
        };
        vec![(from, answer)]
    }

    fn append(
        &mut self,
        now: u64,
        (from, term): (u64, u64),
        (before, of_term): (usize, u64),
        entries: Vec<Arc<Entry>>,
        commit: usize,
    ) -> Result<usize, usize> {
        if term < self.disk.term {
            return Err(self.disk.end());
        }
        self.step_down(term);
        self.role = Role::Follower;
        (self.leader, self.heard) = (Some(from), now);
        if self.disk.term_at(before) != Some(of_term) {
            return Err(self.disk.end().min(before.saturating_sub(1)));
        }
        let mut place = before;
        for entry in entries {
            place += 1;
            if self.disk.term_at(place) == Some(entry.term) {
                continue;
            }
            if place <= self.commit {
                self.cut_committed = Some(place);
            }
            self.disk.cut(place - 1);
            self.disk.push(entry);
        }
        self.commit = self.commit.max(commit.min(place));
        Ok(place)
    }

    /// Returns true if it votes for a candidate: once per term, and only for a log that lacks none of its entries.
    fn grants(&mut self, now: u64, (from, term): (u64, u64), last: (u64, usize)) -> bool {
        if term < self.disk.term || now < self.votes_from {
            return false;
        }
        self.step_down(term);
        let granted = last >= self.disk.last() && self.disk.voted.is_none_or(|voted| voted == from);
        if granted {
            (self.disk.voted, self.heard) = (Some(from), now);
        }
        granted
    }

    /// Returns true if it would vote for a candidate with this log now, without a promise.
    pub(crate) fn would_grant(&self, now: u64, last: (u64, usize)) -> bool {
        now >= self.votes_from && last >= self.disk.last()
    }
}
