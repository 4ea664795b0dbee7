//! Log of a replica: the positions held with their epochs, and the newest entries themselves.

use crate::input::{Identity, RecoveredError, RecoveredState, Run};
use crate::message::{Entry, Position};
use archon_types::{Epoch, Seq};
use std::collections::VecDeque;

/// A contiguous log from after `base` to `last`. All its positions are known; only the newest entries are in memory,
/// including every one that is not yet both committed and durable (unless it was recovered).
#[derive(Debug)]
pub(crate) struct Log {
    base: Position,
    runs: VecDeque<Run>,
    last: Seq,
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    /// Position up to which everything is on disk.
    durable: Seq,
}

impl Log {
    pub(crate) fn recover(identity: &Identity, recovered: &RecoveredState) -> Result<Self, RecoveredError> {
        let partition = identity.partition;
        let RecoveredState { epoch: persisted, base, runs, last, commit } = recovered;
        if *last < base.seq {
            return Err(RecoveredError::EndsBeforeBase { partition, last: *last, base: base.seq });
        }
        let mut before = Run { epoch: base.epoch, first: base.seq };
        for (number, run) in runs.iter().enumerate() {
            let ordered = if number == 0 {
                run.epoch >= before.epoch && Some(run.first) == base.seq.next()
            } else {
                run.epoch > before.epoch && run.first > before.first
            };
            if !ordered || run.first > *last || run.epoch == Epoch::ZERO {
                return Err(RecoveredError::RunsOutOfOrder { partition, epoch: run.epoch, first: run.first });
            }
            before = *run;
        }
        if runs.is_empty() && *last > base.seq {
            return Err(RecoveredError::RunsOutOfOrder { partition, epoch: base.epoch, first: base.seq });
        }
        if before.epoch > *persisted {
            return Err(RecoveredError::EpochTooHigh { partition, found: before.epoch, persisted: *persisted });
        }
        if commit > last {
            return Err(RecoveredError::CommitMissing { partition, commit: *commit, last: *last });
        }
        Ok(Self {
            base: *base,
            runs: runs.iter().copied().collect(),
            last: *last,
            recent: VecDeque::new(),
            recent_bytes: 0,
            durable: *last,
        })
    }

    pub(crate) fn base(&self) -> Position {
        self.base
    }

    pub(crate) fn durable(&self) -> Seq {
        self.durable
    }

    pub(crate) fn last(&self) -> Position {
        Position::new(self.runs.back().map_or(self.base.epoch, |run| run.epoch), self.last)
    }

    /// Returns the epoch of the entry at `seq`, if it is held or is the base.
    pub(crate) fn epoch_at(&self, seq: Seq) -> Option<Epoch> {
        if seq == self.base.seq {
            return Some(self.base.epoch);
        }
        if seq < self.base.seq || seq > self.last {
            return None;
        }
        let after = self.runs.partition_point(|run| run.first <= seq);
        after.checked_sub(1).and_then(|index| self.runs.get(index)).map(|run| run.epoch)
    }

    pub(crate) fn position_at(&self, seq: Seq) -> Option<Position> {
        self.epoch_at(seq).map(|epoch| Position::new(epoch, seq))
    }

    /// Returns whether exactly this position is held.
    pub(crate) fn holds(&self, at: Position) -> bool {
        self.epoch_at(at.seq) == Some(at.epoch)
    }

    /// Returns the newest position held that is at or below `at` in both number and epoch: since epochs never fall
    /// along a log, nothing above it can be shared with a log that holds `at`. `None` if that would lie below the base.
    pub(crate) fn floor(&self, at: Position) -> Option<Position> {
        let capped = at.seq.min(self.last);
        if capped < self.base.seq || self.base.epoch > at.epoch {
            return None;
        }
        let epoch = self.epoch_at(capped)?;
        if epoch <= at.epoch {
            return Some(Position::new(epoch, capped));
        }
        let first_above = self.runs.partition_point(|run| run.epoch <= at.epoch);
        let seq = self.runs.get(first_above).map_or(self.last, |run| run.first.previous());
        self.position_at(seq)
    }

    /// Adds an entry right after the last one. The caller has checked that it fits.
    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert_eq!(Some(entry.at.seq), self.last.next(), "entries are contiguous");
        debug_assert!(entry.at.epoch >= self.last().epoch, "epochs never fall along a log");
        if self.runs.back().is_none_or(|run| run.epoch != entry.at.epoch) {
            self.runs.push_back(Run { epoch: entry.at.epoch, first: entry.at.seq });
        }
        self.last = entry.at.seq;
        self.recent_bytes += entry.bytes.len();
        self.recent.push_back(entry);
    }

    /// Removes everything after `after`.
    pub(crate) fn cut(&mut self, after: Seq) {
        debug_assert!(after >= self.base.seq, "a cut below the base");
        while self.recent.back().is_some_and(|entry| entry.at.seq > after) {
            if let Some(entry) = self.recent.pop_back() {
                self.recent_bytes -= entry.bytes.len();
            }
        }
        while self.runs.back().is_some_and(|run| run.first > after) {
            self.runs.pop_back();
        }
        self.last = self.last.min(after);
        self.durable = self.durable.min(after);
    }

    /// Removes everything; the log restarts after `base`, of which nothing is durable yet.
    pub(crate) fn reset(&mut self, base: Position) {
        *self = Self {
            base,
            runs: VecDeque::new(),
            last: base.seq,
            recent: VecDeque::new(),
            recent_bytes: 0,
            durable: Seq::ZERO,
        };
    }

    pub(crate) fn set_durable(&mut self, upto: Seq) {
        debug_assert!(upto <= self.last, "durable beyond the end");
        self.durable = self.durable.max(upto);
    }

    /// Notes that the entries up to `upto` are no longer on disk.
    pub(crate) fn trim(&mut self, upto: Seq) {
        let Some(base) = self.position_at(upto).filter(|base| base.seq > self.base.seq) else { return };
        while self.runs.get(1).is_some_and(|run| Some(run.first) <= upto.next()) {
            self.runs.pop_front();
        }
        if upto == self.last {
            self.runs.clear();
        } else if let Some(run) = self.runs.front_mut()
            && run.first <= upto
        {
            run.first = upto.next().unwrap_or(upto);
        }
        self.base = base;
        while self.recent.front().is_some_and(|entry| entry.at.seq <= upto) {
            self.forget_oldest();
        }
    }

    /// Drops entries at or below `settled` from memory until at most `bytes_max` are left; they stay on disk.
    pub(crate) fn evict(&mut self, settled: Seq, bytes_max: usize) {
        while self.recent_bytes > bytes_max && self.recent.front().is_some_and(|entry| entry.at.seq <= settled) {
            self.forget_oldest();
        }
        if bytes_max == 0 {
            while self.recent.front().is_some_and(|entry| entry.at.seq <= settled) {
                self.forget_oldest();
            }
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(entry) = self.recent.pop_front() {
            self.recent_bytes -= entry.bytes.len();
        }
    }

    /// Returns the first position with its entry in memory (one after the end if there is none).
    pub(crate) fn recent_first(&self) -> Seq {
        self.recent.front().map_or_else(|| self.last.next().unwrap_or(self.last), |entry| entry.at.seq)
    }

    /// Returns entries from `from` on, within the bounds but at least one; `None` if `from` is not in memory.
    pub(crate) fn recent_from(&self, from: Seq, entries_max: usize, bytes_max: usize) -> Option<Vec<Entry>> {
        let skip = from.get().checked_sub(self.recent.front()?.at.seq.get())?;
        let mut bytes = 0_usize;
        let skip = usize::try_from(skip).ok()?;
        let mut found = Vec::with_capacity(self.recent.len().saturating_sub(skip).min(entries_max));
        for entry in self.recent.iter().skip(skip) {
            bytes = bytes.saturating_add(entry.bytes.len());
            if !found.is_empty() && (found.len() >= entries_max || bytes > bytes_max) {
                break;
            }
            found.push(entry.clone());
        }
        if found.is_empty() { None } else { Some(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Incarnation, NodeId, PartitionId, PlacementId, TableId};
    use bytes::Bytes;

    fn at(epoch: u64, seq: u64) -> Position {
        Position::new(Epoch::new(epoch), Seq::new(seq))
    }

    fn identity() -> Identity {
        Identity {
            partition: PartitionId::new(TableId::new(1), 0),
            placement: PlacementId::new(1),
            node: NodeId::new(1),
            incarnation: Incarnation::new(1),
        }
    }

    /// Epochs 1 1 1 3 3 4 at positions 1..=6.
    fn sample() -> Log {
        let mut log = Log::recover(&identity(), &RecoveredState::default()).unwrap();
        for (seq, epoch) in [1, 1, 1, 3, 3, 4].into_iter().enumerate() {
            log.push(Entry { at: at(epoch, seq as u64 + 1), bytes: Bytes::from_static(b"12345") });
        }
        log
    }

    #[test]
    fn epochs_are_known_for_every_position() {
        let log = sample();
        let found: Vec<u64> = (0..=7).map(|seq| log.epoch_at(Seq::new(seq)).map_or(99, |epoch| epoch.get())).collect();
        assert_eq!(found, [0, 1, 1, 1, 3, 3, 4, 99]);
        assert!(log.holds(at(3, 4)) && !log.holds(at(2, 4)) && !log.holds(at(4, 7)));
    }

    #[test]
    fn floor_finds_what_two_logs_may_share() {
        let log = sample();
        assert_eq!(log.floor(at(4, 6)), Some(at(4, 6)));
        assert_eq!(log.floor(at(9, 9)), Some(at(4, 6)));
        assert_eq!(log.floor(at(3, 6)), Some(at(3, 5)));
        assert_eq!(log.floor(at(2, 5)), Some(at(1, 3)));
        assert_eq!(log.floor(at(2, 2)), Some(at(1, 2)));
        assert_eq!(log.floor(at(0, 5)), Some(at(0, 0)));
    }

    #[test]
    fn trim_keeps_base_position_and_floor_stops_there() {
        let mut log = sample();
        log.trim(Seq::new(4));
        assert_eq!((log.base(), log.last()), (at(3, 4), at(4, 6)));
        assert!(log.holds(at(3, 4)) && log.holds(at(3, 5)) && !log.holds(at(1, 3)));
        assert_eq!(log.floor(at(3, 3)), None);
        assert_eq!(log.floor(at(2, 9)), None);
        assert_eq!(log.floor(at(3, 9)), Some(at(3, 5)));
        log.trim(Seq::new(6));
        assert_eq!((log.base(), log.last()), (at(4, 6), at(4, 6)));
        assert_eq!(log.recent_from(Seq::new(6), 9, 99), None);
    }

    #[test]
    fn cut_shortens_runs_memory_and_durability() {
        let mut log = sample();
        log.set_durable(Seq::new(6));
        log.cut(Seq::new(4));
        assert_eq!((log.last(), log.durable()), (at(3, 4), Seq::new(4)));
        log.push(Entry { at: at(5, 5), bytes: Bytes::new() });
        assert_eq!(log.last(), at(5, 5));
    }

    #[test]
    fn reading_from_memory_is_bounded_but_never_empty() {
        let mut log = sample();
        assert_eq!(log.recent_from(Seq::new(2), 9, 10).map(|found| found.len()), Some(2));
        assert_eq!(log.recent_from(Seq::new(2), 9, 1).map(|found| found.len()), Some(1));
        log.evict(Seq::new(3), 0);
        assert_eq!(log.recent_first(), Seq::new(4));
        assert_eq!(log.recent_from(Seq::new(3), 9, 99), None);
    }

    #[test]
    fn contradictory_recovered_state_is_refused() {
        let run = |epoch, first| Run { epoch: Epoch::new(epoch), first: Seq::new(first) };
        let good = RecoveredState {
            epoch: Epoch::new(4),
            base: at(1, 2),
            runs: vec![run(1, 3), run(4, 5)],
            last: Seq::new(6),
            commit: Seq::new(3),
        };
        assert!(Log::recover(&identity(), &good).is_ok());
        let bad = [
            RecoveredState { last: Seq::new(1), ..good.clone() },
            RecoveredState { runs: vec![run(4, 3), run(1, 5)], ..good.clone() },
            RecoveredState { runs: vec![run(1, 4)], ..good.clone() },
            RecoveredState { runs: vec![], ..good.clone() },
            RecoveredState { epoch: Epoch::new(3), ..good.clone() },
            RecoveredState { commit: Seq::new(7), ..good },
        ];
        for (number, recovered) in bad.iter().enumerate() {
            assert!(Log::recover(&identity(), recovered).is_err(), "case {number}");
        }
    }
}
