//! What a coordinator's directory holds.

use super::{Entry, Membership, What};
use archon_types::StorageId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A data directory: who it is, what it voted, its log. All of it is durable at once.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) id: u64,
    pub(crate) storage: StorageId,
    pub(crate) term: u64,
    pub(crate) voted: Option<u64>,
    /// Who may talk to it before its log names itself, and where they are reached.
    pub(crate) expected: BTreeMap<u64, String>,
    /// It takes part in a quorum: it founded one, or was let in.
    pub(crate) started: bool,
    log: Vec<Arc<Entry>>,
    /// Places of the entries about the members.
    about_members: Vec<usize>,
}

impl Disk {
    /// An empty directory.
    pub(crate) fn new(id: u64, storage: StorageId) -> Self {
        let expected = BTreeMap::new();
        Self { id, storage, term: 0, voted: None, expected, started: false, log: Vec::new(), about_members: Vec::new() }
    }

    /// How many entries the log has; the place of its last one.
    pub(crate) fn end(&self) -> usize {
        self.log.len()
    }

    /// The entry at a place, which count from one.
    pub(crate) fn entry(&self, place: usize) -> Option<&Arc<Entry>> {
        self.log.get(place.checked_sub(1)?)
    }

    /// The term of the entry at a place; zero before the first one.
    pub(crate) fn term_at(&self, place: usize) -> Option<u64> {
        if place == 0 { Some(0) } else { self.entry(place).map(|entry| entry.term) }
    }

    /// Term and place of the last entry.
    pub(crate) fn last(&self) -> (u64, usize) {
        (self.log.last().map_or(0, |entry| entry.term), self.end())
    }

    /// Up to so many entries from a place on.
    pub(crate) fn entries_from(&self, place: usize, most: usize) -> Vec<Arc<Entry>> {
        self.log.iter().skip(place.saturating_sub(1)).take(most).cloned().collect()
    }

    pub(crate) fn push(&mut self, entry: Arc<Entry>) {
        self.log.push(entry);
        if matches!(self.log.last().map(|entry| &entry.what), Some(What::Members(_))) {
            self.about_members.push(self.log.len());
        }
    }

    /// Cuts what comes after a place.
    pub(crate) fn cut(&mut self, place: usize) {
        self.log.truncate(place);
        self.about_members.retain(|at| *at <= place);
    }

    /// Whether an entry about the members names a voter, either the last one or the last that is committed: one that is to go may be needed
    /// to have that committed (Ongaro 2014, §4.2.2).
    pub(crate) fn may_stand(&self, id: u64, committed: usize) -> bool {
        let names = |at: &usize| match self.entry(*at).map(|entry| &entry.what) {
            Some(What::Members(membership)) => membership.is_voter(id),
            _ => false,
        };
        let of_committed = self.about_members.iter().rev().find(|at| **at <= committed);
        self.about_members.last().is_some_and(names) || of_committed.is_some_and(names)
    }

    /// Who the members are by the last entry about them, committed or not, and its place.
    pub(crate) fn membership(&self) -> Option<(usize, &Membership)> {
        let at = *self.about_members.last()?;
        match &self.entry(at)?.what {
            What::Members(membership) => Some((at, membership)),
            What::Blank | What::Batch(_) => None,
        }
    }
}
