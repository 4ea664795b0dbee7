//! Elections, and a leader's view of the others.

use super::voter::VoterMessages;
use super::{Body, Entry, EntryContent, Role, Voter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of entries in one message: a member that lacks more copies them in rounds.
const ENTRIES_MAX: usize = 40;

/// A leader's view of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Position of the next entry to send.
    next: usize,
    /// Its log matches the leader's up to here.
    matched: usize,
    /// Time of its last answer, if any.
    heard: Option<u64>,
}

impl Voter {
    /// Stands for election, if its log allows it to vote.
    pub(crate) fn campaign(&mut self, now: u64) -> VoterMessages {
        let Some(membership) = self.membership().filter(|_| self.may_stand()) else { return Vec::new() };
        let voters = membership.voters();
        self.step_down(self.disk.term + 1);
        let (id, term, last) = (self.disk.id, self.disk.term, self.disk.last());
        self.disk.voted = Some(id);
        (self.role, self.heard, self.votes) = (Role::Candidate, now, BTreeSet::from([id]));
        if self.is_elected() {
            return self.lead();
        }
        voters.into_iter().filter(|other| *other != id).map(|other| (other, Body::AskVote { term, last })).collect()
    }

    /// Returns true if its log allows it to stand for election.
    pub(crate) fn may_stand(&self) -> bool {
        self.disk.may_stand(self.disk.id, self.commit)
    }

    fn is_elected(&self) -> bool {
        self.membership().is_some_and(|membership| membership.decides(|id| self.votes.contains(&id)))
    }

    pub(super) fn voted(&mut self, from: u64, term: u64, granted: bool) -> VoterMessages {
        self.step_down(term);
        if self.role != Role::Candidate || term != self.disk.term || !granted {
            return Vec::new();
        }
        self.votes.insert(from);
        if self.is_elected() { self.lead() } else { Vec::new() }
    }

    /// Starts to lead, and begins its term with an entry of its own.
    fn lead(&mut self) -> VoterMessages {
        (self.role, self.leader) = (Role::Leader, Some(self.disk.id));
        self.progress.clear();
        self.propose(EntryContent::Blank)
    }

    /// Appends to its own log, and sends the entry to the others.
    pub(crate) fn propose(&mut self, what: EntryContent) -> VoterMessages {
        self.disk.push(Arc::new(Entry { term: self.disk.term, what }));
        let said = self.tell();
        self.advance();
        said
    }

    /// Sends the other members the entries they lack, as far as known; otherwise an empty message as a heartbeat.
    pub(crate) fn tell(&mut self) -> VoterMessages {
        let Some(others) = self.membership().map(|membership| membership.numbers().collect::<BTreeSet<u64>>()) else {
            return Vec::new();
        };
        self.progress.retain(|id, _| others.contains(id));
        let id = self.disk.id;
        others.into_iter().filter(|other| *other != id).map(|other| (other, self.append_for(other))).collect()
    }

    fn append_for(&mut self, other: u64) -> Body {
        let (term, commit, end) = (self.disk.term, self.commit, self.disk.end());
        let progress = self.progress.entry(other).or_insert(Progress { next: end, matched: 0, heard: None });
        let before = progress.next.saturating_sub(1).min(end);
        let entries = self.disk.entries_from(before + 1, ENTRIES_MAX);
        progress.next = before + entries.len() + 1;
        Body::Append { term, before: (before, self.disk.term_at(before).unwrap_or(0)), entries, commit }
    }

    pub(super) fn appended(&mut self, now: u64, from: u64, term: u64, upto: Result<usize, usize>) -> VoterMessages {
        self.step_down(term);
        if !self.leads() || term != self.disk.term {
            return Vec::new();
        }
        let end = self.disk.end();
        let Some(progress) = self.progress.get_mut(&from) else { return Vec::new() };
        progress.heard = Some(now);
        match upto {
            Ok(matched) => {
                progress.matched = progress.matched.max(matched);
                progress.next = progress.next.max(progress.matched + 1);
            }
            Err(hint) => progress.next = (hint + 1).min(progress.next).max(progress.matched + 1),
        }
        let more = upto.is_err() || progress.next <= end;
        self.advance();
        if more { vec![(from, self.append_for(from))] } else { Vec::new() }
    }

    /// Commits the entries of its own term that a majority has (Ongaro 2014, §3.6.2), by the members that the log names
    /// last. A leader that is not one of their voters steps down.
    fn advance(&mut self) {
        let Some((at, membership)) = self.disk.membership() else { return };
        let has = |id: u64, place: usize| {
            let matched = self.progress.get(&id).map_or(0, |progress| progress.matched);
            if id == self.disk.id { self.disk.end() >= place } else { matched >= place }
        };
        let own = |place: &usize| self.disk.term_at(*place) == Some(self.disk.term);
        let places = (self.commit + 1..=self.disk.end()).rev().take_while(own);
        let commit = places.into_iter().find(|place| membership.decides(|id| has(id, *place)));
        let votes = membership.is_voter(self.disk.id);
        self.commit = commit.unwrap_or(self.commit);
        if !votes && at <= self.commit {
            self.role = Role::Follower;
        }
    }

    /// Returns the time of a member's last answer to this leader.
    pub(crate) fn heard_from(&self, id: u64) -> Option<u64> {
        self.progress.get(&id)?.heard
    }

    /// Returns the number of entries that a member lacks, if it has answered.
    pub(crate) fn behind(&self, id: u64) -> Option<usize> {
        let progress = self.progress.get(&id).filter(|progress| progress.heard.is_some())?;
        Some(self.disk.end().saturating_sub(progress.matched))
    }

    /// Returns true if the last membership in the log is committed, so that it may change again.
    pub(crate) fn members_are_committed(&self) -> bool {
        self.disk.membership().is_some_and(|(at, _)| at <= self.commit)
    }
}
