//! A disk that keeps completed writes, and loses the rest at a crash.

use crate::{Entry, Position, Record, RecoveredState, Run};
use archon_types::{Epoch, Seq};
use std::collections::{BTreeMap, VecDeque};

/// One node's durable state, pending writes, and a toy engine of blind puts.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) epoch: Epoch,
    pub(super) base: Position,
    pub(super) entries: Vec<Entry>,
    pub(super) under_way: VecDeque<(u64, Vec<Record>)>,
    /// Key (an entry's first byte) to the position of its last put.
    pub(super) engine: BTreeMap<u8, u64>,
    pub(super) applied: Seq,
}

impl Disk {
    pub(super) fn last(&self) -> Seq {
        self.entries.last().map_or(self.base.seq, |entry| entry.at.seq)
    }

    /// Completes the oldest write; returns its token.
    pub(super) fn complete_one(&mut self) -> Option<u64> {
        let (token, records) = self.under_way.pop_front()?;
        for record in records {
            match record {
                Record::Epoch(epoch) => self.epoch = epoch,
                Record::Entries(entries) => {
                    for entry in entries {
                        assert_eq!(self.last().next(), Some(entry.at.seq), "the WAL takes contiguous entries only");
                        self.entries.push(entry);
                    }
                }
                Record::Cut { after } => self.entries.retain(|entry| entry.at.seq <= after),
                Record::Reset { base } => {
                    self.entries.clear();
                    self.base = base;
                    self.applied = base.seq;
                }
            }
        }
        Some(token)
    }

    pub(super) fn apply(&mut self, entry: &Entry) {
        assert_eq!(self.applied.next(), Some(entry.at.seq), "entries are applied in order");
        if let Some(key) = entry.bytes.first() {
            self.engine.insert(*key, entry.at.seq.get());
        }
        self.applied = entry.at.seq;
    }

    pub(super) fn trim(&mut self, upto: Seq) {
        if let Some(entry) = self.entries.iter().find(|entry| entry.at.seq == upto) {
            self.base = entry.at;
            self.entries.retain(|entry| entry.at.seq > upto);
        }
    }

    /// Ends the process: pending writes are lost.
    pub(super) fn crash(&mut self) -> RecoveredState {
        self.under_way.clear();
        let mut runs: Vec<Run> = Vec::new();
        for entry in &self.entries {
            if runs.last().is_none_or(|run| run.epoch != entry.at.epoch) {
                runs.push(Run { epoch: entry.at.epoch, first: entry.at.seq });
            }
        }
        self.applied = self.applied.min(self.last());
        RecoveredState { epoch: self.epoch, base: self.base, runs, last: self.last(), commit: self.applied }
    }
}
