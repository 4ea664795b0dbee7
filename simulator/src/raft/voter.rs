//! A coordinator as a member of the quorum: what it takes in and what it answers.

use super::lead::Progress;
use super::{Body, Disk, Entry, Membership};
use archon_coordinator_core::CoordinatorStanding;
use archon_types::StorageId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What it is to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Follower,
    Candidate,
    Leader,
}

/// What a member says to others, by their numbers.
pub(crate) type Said = Vec<(u64, Body)>;

/// A coordinator's part in the quorum: its directory, and what its process keeps in memory.
#[derive(Clone, Debug)]
pub(crate) struct Voter {
    pub(crate) disk: Disk,
    pub(crate) role: Role,
    /// Who leads, as far as it knows.
    pub(crate) leader: Option<u64>,
    /// Up to where the log is known to be committed.
    pub(super) commit: usize,
    /// When a leader was heard last, or somebody was voted for.
    pub(crate) heard: u64,
    /// It grants no vote before then.
    votes_from: u64,
    pub(super) votes: BTreeSet<u64>,
    pub(super) progress: BTreeMap<u64, Progress>,
    /// Coordinators that a member vouches for, and those to ask about.
    pub(crate) vouched: BTreeMap<u64, StorageId>,
    pub(crate) strangers: BTreeMap<u64, StorageId>,
    /// A member said that this one was removed, or belongs to another directory.
    pub(crate) dismissed: bool,
    /// An entry went that was committed.
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

    /// The next process with this directory: what is known to be committed is on the disk as well.
    pub(crate) fn restarted(&self, now: u64, vote_pause: u64) -> Self {
        let commit = self.commit.min(self.disk.end());
        Self { commit, ..Self::new(self.disk.clone(), now, vote_pause) }
    }

    /// A founder, whose log is committed as it is.
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

    /// Takes in what a coordinator says that is heard.
    pub(crate) fn take(&mut self, now: u64, from: u64, body: Body) -> Said {
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
            // What was asked by a process with another directory is nothing to this one.
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

    /// Whether it votes for a candidate: once in a term, and for nobody whose log lacks what it has.
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

    /// Whether it would vote for a candidate with this log if it were asked now; nothing is promised by that.
    pub(crate) fn would_grant(&self, now: u64, last: (u64, usize)) -> bool {
        now >= self.votes_from && last >= self.disk.last()
    }
}
