//! The log in memory: the decoded entries that are not purged, and facts about the rest.

use crate::raft::types::{Entry, LogId, Vote};
use parking_lot::RwLock;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// An entry, and its encoded size in bytes.
pub(super) struct MemoryEntry {
    pub(super) entry: Entry,
    pub(super) bytes: usize,
}

/// The log as openraft sees it.
#[derive(Default)]
pub(in crate::raft) struct Memory {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    /// The committed position is not worth its own fsync: it is written with the next batch.
    pub(super) committed_unsaved: bool,
    pub(super) purged: Option<LogId>,
    pub(super) entries: VecDeque<MemoryEntry>,
    /// Encoded size of all entries.
    pub(super) bytes: u64,
}

impl Memory {
    pub(super) fn push(&mut self, entry: Entry, bytes: usize) {
        self.bytes += bytes as u64;
        self.entries.push_back(MemoryEntry { entry, bytes });
    }

    /// Removes the entries up to and including `upto`.
    pub(super) fn purge(&mut self, upto: LogId) {
        let (_, end) = self.range(&(..=upto.index));
        self.bytes -= size(self.entries.drain(..end));
        self.purged = Some(upto);
    }

    /// Keeps the entries up to and including `last`.
    pub(super) fn truncate(&mut self, last: Option<LogId>) {
        let keep = last.map_or(0, |id| id.index + 1);
        let (_, end) = self.range(&(..keep));
        self.bytes -= size(self.entries.drain(end..));
    }

    fn first_index(&self) -> u64 {
        self.entries.front().map_or(0, |stored| stored.entry.log_id.index)
    }

    /// Returns the positions in `entries` where a range of indexes begins and ends.
    pub(super) fn range<R: RangeBounds<u64>>(&self, range: &R) -> (usize, usize) {
        let first = self.first_index();
        let start = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(index) => index.saturating_add(1),
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        let place = |index: u64| usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX);
        let length = self.entries.len();
        let start = place(start).min(length);
        (start, place(end).min(length).max(start))
    }
}

fn size(gone: impl Iterator<Item = MemoryEntry>) -> u64 {
    gone.map(|stored| stored.bytes as u64).sum()
}

/// Size of the log, for bounding it.
#[derive(Clone)]
pub(crate) struct LogSize(pub(super) Arc<RwLock<Memory>>);

impl LogSize {
    /// Returns the encoded bytes of the entries held.
    pub(in crate::raft) fn bytes(&self) -> u64 {
        self.0.read().bytes
    }

    /// Returns the encoded bytes of the entries held, the first index held, and the first index of the last `kept`
    /// bytes.
    pub(in crate::raft) fn look(&self, kept: u64) -> (u64, u64, u64) {
        let memory = self.0.read();
        let mut sum = 0;
        let newest = memory.entries.iter().rev().take_while(|stored| {
            sum += stored.bytes as u64;
            sum <= kept
        });
        // The newest one always stays.
        let index = |stored: Option<&MemoryEntry>| stored.map_or(0, |stored| stored.entry.log_id.index);
        let from = index(newest.last().or(memory.entries.back()));
        (memory.bytes, index(memory.entries.front()), from)
    }
}

/// The durable term of this voter's vote.
#[derive(Clone)]
pub(crate) struct OwnTerm(pub(super) Arc<RwLock<Memory>>);

impl OwnTerm {
    /// Returns zero before its first vote.
    pub(crate) fn get(&self) -> u64 {
        self.0.read().vote.map_or(0, |vote| vote.leader_id.term)
    }
}
