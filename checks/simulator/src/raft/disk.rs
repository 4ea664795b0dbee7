//! Content of a coordinator's directory.

use super::{Entry, EntryContent, Membership};
use archon_types::StorageId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A data directory: identity, vote, log. All of it is durable at once.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) id: u64,
    pub(crate) storage: StorageId,
    pub(crate) term: u64,
    pub(crate) voted: Option<u64>,
    /// Peers that may contact it before its log names itself, with their addresses.
    pub(crate) expected: BTreeMap<u64, String>,
    /// True if it takes part in a quorum: it founded one, or was admitted.
    pub(crate) started: bool,
    log: Vec<Arc<Entry>>,
    /// Positions of the entries about the members.
    about_members: Vec<usize>,
}

impl Disk {
    /// Returns an empty directory.
    pub(crate) fn new(id: u64, storage: StorageId) -> Self {
        let expected = BTreeMap::new();
        Self { id, storage, term: 0, voted: None, expected, started: false, log: Vec::new(), about_members: Vec::new() }
    }

    /// Returns the number of entries in the log: the position of its last one.
    pub(crate) fn end(&self) -> usize {
        self.log.len()
    }

    /// Returns the entry at a position, counted from one.
    pub(crate) fn entry(&self, place: usize) -> Option<&Arc<Entry>> {
        self.log.get(place.checked_sub(1)?)
    }

    /// Returns the term of the entry at a position; zero before the first one.
    pub(crate) fn term_at(&self, place: usize) -> Option<u64> {
        if place == 0 { Some(0) } else { self.entry(place).map(|entry| entry.term) }
    }

    /// Returns term and position of the last entry.
    pub(crate) fn last(&self) -> (u64, usize) {
        (self.log.last().map_or(0, |entry| entry.term), self.end())
    }

    /// Returns up to `most` entries from a position on.
    pub(crate) fn entries_from(&self, place: usize, most: usize) -> Vec<Arc<Entry>> {
        self.log.iter().skip(place.saturating_sub(1)).take(most).cloned().collect()
    }

    pub(crate) fn push(&mut self, entry: Arc<Entry>) {
        self.log.push(entry);
        if matches!(self.log.last().map(|entry| &entry.what), Some(EntryContent::Members(_))) {
            self.about_members.push(self.log.len());
        }
    }

    /// Truncates the log after a position.
    pub(crate) fn cut(&mut self, place: usize) {
        self.log.truncate(place);
        self.about_members.retain(|at| *at <= place);
    }

    /// Returns true if an entry about the members names a voter, either the last one or the last committed one: a
    /// member to be removed may be needed to commit its removal (Ongaro 2014, §4.2.2).
    pub(crate) fn may_stand(&self, id: u64, committed: usize) -> bool {
        let names = |at: &usize| match self.entry(*at).map(|entry| &entry.what) {
            Some(EntryContent::Members(membership)) => membership.is_voter(id),
            _ => false,
        };
        let of_committed = self.about_members.iter().rev().find(|at| **at <= committed);
        self.about_members.last().is_some_and(names) || of_committed.is_some_and(names)
    }

    /// Returns the membership of the last entry about it, committed or not, and its position.
    pub(crate) fn membership(&self) -> Option<(usize, &Membership)> {
        let at = *self.about_members.last()?;
        match &self.entry(at)?.what {
            EntryContent::Members(membership) => Some((at, membership)),
            EntryContent::Blank | EntryContent::Batch(_) => None,
        }
    }
}
