//! Replay of a copy's log at a start: rebuilds the effects that the engine may not have.

use crate::copies::local_copy::{ENGINE_AHEAD_UNKNOWN, RecoveredCopy};
use crate::persist::unreadable;
use archon_kv::{Effect, EffectError, LogTime, Memtable, MemtableBudget, MemtableError};
use archon_replica::{Position, RecoveredState};
use archon_types::{PartitionId, Seq};

/// Effects of a copy's log after the position up to which its engine is complete.
#[derive(Debug)]
pub struct LogReplay {
    complete: Position,
    memtable: Memtable,
    log_time: LogTime,
    unreadable: Option<String>,
}

impl LogReplay {
    /// Begins after `complete`. `written` is the position that the engine holds, and `log_time` continues from the stamp
    /// stored with the rows.
    pub fn new(complete: Position, written: Option<Seq>, log_time: LogTime, budget: MemtableBudget) -> Self {
        let mut memtable = Memtable::new(complete.seq, budget);
        // The engine may hold more than this log: a copy that is not in sync yet was pulled with rows above its end.
        memtable.set_engine_ahead(ENGINE_AHEAD_UNKNOWN);
        memtable.set_engine_position(written.unwrap_or_default());
        Self { complete, memtable, log_time, unreadable: None }
    }

    /// Takes in the next entry. After one that this version cannot read, none is taken in: the entry is as it was written,
    /// so the copy is kept for a version that can read it.
    ///
    /// # Errors
    /// [`MemtableError`] unless the entries are in order.
    pub fn take_entry(
        &mut self,
        at: Seq,
        decode: impl FnOnce() -> Result<Effect, EffectError>,
    ) -> Result<(), MemtableError> {
        if at <= self.complete.seq || self.unreadable.is_some() {
            return Ok(());
        }
        match decode() {
            Ok(effect) => {
                self.log_time.observe(effect.at);
                self.memtable.push(at, effect)?;
            }
            Err(error) => self.unreadable = Some(unreadable(at, &error)),
        }
        Ok(())
    }

    /// Returns the effects taken in so far, for an engine that takes some of them early.
    pub const fn memtable_mut(&mut self) -> &mut Memtable {
        &mut self.memtable
    }

    /// Returns the copy, given the recovered state of its replica.
    pub fn end(self, partition: PartitionId, recovered: RecoveredState) -> RecoveredCopy {
        let Self { complete, memtable, log_time, unreadable } = self;
        RecoveredCopy { partition, recovered, complete, memtable, log_time, unreadable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_shell::PARTITION;
    use archon_replica::Run;
    use archon_types::{Epoch, Millis};

    fn effect(at: u64) -> Effect {
        Effect { at: Millis::new(at), clear: None, changes: Vec::new(), forget: Vec::new(), record: None }
    }

    #[test]
    fn replay_skips_flushed_entries_and_those_after_an_unreadable_one() {
        let complete = Position::new(Epoch::new(1), Seq::new(2));
        let mut replay = LogReplay::new(complete, Some(Seq::new(2)), LogTime::default(), MemtableBudget::default());
        for (seq, entry) in [(2, Ok(9)), (3, Ok(5)), (4, Err(7)), (5, Ok(8))] {
            let entry = entry.map(effect).map_err(|found| EffectError::Format { found });
            replay.take_entry(Seq::new(seq), || entry).unwrap();
        }
        let last = replay.memtable_mut().last();
        let recovered = RecoveredState {
            epoch: Epoch::new(1),
            base: Position::ZERO,
            runs: vec![Run { epoch: Epoch::new(1), first: Seq::new(1) }],
            last: Seq::new(5),
            commit: complete.seq,
        };
        let mut copy = replay.end(PARTITION, recovered);
        assert_eq!((last, copy.log_time.stamp(Millis::ZERO)), (Seq::new(3), Millis::new(5)));
        assert_eq!(copy.memtable.engine_ahead(), ENGINE_AHEAD_UNKNOWN);
        let why = copy.unreadable.unwrap();
        assert!(why.contains("entry 4 of its log") && why.contains("run the version that wrote the entry"), "{why}");
    }
}
