//! Values that expire: reads of them, and the entries that remove them (PROTOCOL rules 83 to 86).

use crate::copies::local_copy::{LocalCopy, Outcome};
use crate::mutant::Mutant;
use crate::partitions::Partitions;
use crate::shell::{Observed, Shell};
use crate::turn::Turn;
use archon_kv::engine::PageLimit;
use archon_kv::{
    Effect, Evaluation, PartitionView, Reader, Request as Asked, RowChange, View, ViewError, evaluate, row,
};
use archon_types::limits::PAGE_BYTES_MAX;
use archon_types::{Answer, KeyRange, Millis, Op, PlacementId, Revision};
use std::ops::Bound;

/// Most rows that one entry removes.
const REMOVED_ROWS_MAX: usize = 128;
/// Most rows that a leader reads at once to find those that expire.
const READ_ROWS_MAX: usize = 256;
/// Most entries and pages of a turn, for all partitions together.
const EXPIRIES_MAX: usize = 4;

impl<S: Shell> Turn<S> {
    /// Returns the time that reads of this leader compare with: its clock, but never less than the log time.
    fn read_time(&self, local: &LocalCopy<S>) -> Millis {
        if self.broken.breaks(Mutant::ExpiryByClock) {
            return self.shell.wall(); // rule 84
        }
        self.shell.wall().max(local.log_time.last())
    }

    /// Returns the log time of the last committed entry.
    pub(crate) fn committed_time(&self, local: &LocalCopy<S>) -> Result<Millis, ViewError> {
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Committed);
        let time = view.get(row::LOG_TIME_KEY)?;
        Ok(time.map(|time| row::decode_millis(&time)).transpose()?.unwrap_or(Millis::ZERO))
    }

    /// Evaluates a read of committed rows. Returns `None` if that needs an entry first: a value is due by this leader's
    /// clock, but not by an entry that it committed, so a later leader might show it again (PROTOCOL rule 84).
    pub(crate) fn look_up(&self, local: &mut LocalCopy<S>, op: &Op) -> Result<Option<Outcome>, ViewError> {
        let unlogged = self.broken.breaks(Mutant::ExpiryUnlogged); // rule 84
        if let Op::Get { key } = op {
            let Some(stored) = self.value(local, key)? else { return Ok(Some(Ok(Answer::Value(None)))) };
            let Some(expires) = stored.expires.filter(|expires| *expires <= self.read_time(local)) else {
                return Ok(Some(Ok(Answer::Value(Some(stored)))));
            };
            let is_decided = unlogged || expires <= local.waiting.decided();
            return Ok(is_decided.then_some(Ok(Answer::Value(None))));
        }
        let found = self.evaluated(local, op, Reader::Committed, self.read_time(local))?;
        if found.effect.is_none() || unlogged {
            return Ok(Some(found.answer));
        }
        let decided = self.evaluated(local, op, Reader::Committed, local.waiting.decided())?;
        Ok((decided.answer == found.answer).then_some(found.answer))
    }

    /// Returns the rows over which a read is evaluated that gets an entry: the newest ones, as it comes after them.
    pub(crate) fn reader_of_due(&self) -> Reader {
        match self.broken.breaks(Mutant::ExpiryOfCommitted) {
            true => Reader::Committed, // rule 84
            false => Reader::Newest,
        }
    }

    /// Evaluates a read at log time `at`. Scans cover only keys that this partition has.
    pub(crate) fn evaluated(
        &self,
        local: &LocalCopy<S>,
        op: &Op,
        reader: Reader,
        at: Millis,
    ) -> Result<Evaluation, ViewError> {
        let range = local.split.unsealed(local.range().cloned().unwrap_or(KeyRange::ALL));
        let within = match op {
            Op::Scan { keys, order, limit } => {
                Some(Op::Scan { keys: keys.clone().and(&range), order: *order, limit: *limit })
            }
            _ => None,
        };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, reader);
        let asked = Asked { op: within.as_ref().unwrap_or(op), id: None };
        let found = evaluate(asked, &view, at, Revision::ZERO, self.shell.dedup())?;
        let answer = found.answer.map(|answer| match answer {
            Answer::Page { entries, more, .. } => Answer::Page { entries, more, range },
            other => other,
        });
        Ok(Evaluation { answer, ..found })
    }

    /// Notes a value that an entry writes, to be removed once it has expired.
    pub(crate) fn note_expiry(&self, local: &mut LocalCopy<S>, changes: &[RowChange]) {
        for RowChange { key, value } in changes {
            if let Some(expires) = value.as_ref().and_then(|row| row::expiry_of(row)) {
                local.expiry.note(key, expires);
            }
        }
    }

    /// Removes rows of a partition that have expired, in one entry, or reads a page of rows to find them. Returns whether
    /// there was anything to do.
    fn expire(&mut self, local: &mut LocalCopy<S>) -> bool {
        let at = self.shell.wall().max(local.log_time.last());
        let Some(keys) = local.range() else { return false };
        if !local.expiry.has_work(at, keys)
            || !local.split.is_idle()
            || local.row().is_some_and(|row| row.is_reshaped())
        {
            return false;
        }
        if self.room(local).is_err() || !self.leadership(local).holds() {
            return false;
        }
        match self.expire_rows(local, at) {
            Ok(worked) => worked,
            Err(error) => {
                self.unusable(local, &error);
                false
            }
        }
    }

    fn expire_rows(&mut self, local: &mut LocalCopy<S>, at: Millis) -> Result<bool, ViewError> {
        let Some(keys) = local.range().cloned() else { return Ok(false) };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        let limit = self.shell.page_limit();
        let (mut changes, mut bytes, mut count) = (Vec::new(), 0, 0);
        for key in local.expiry.due(at, REMOVED_ROWS_MAX) {
            if changes.len() >= REMOVED_ROWS_MAX || limit.is_full(changes.len(), bytes, key.len()) {
                break;
            }
            count += 1;
            // The row may have been written again, or be another partition's by now.
            let expires = view.get(key)?.and_then(|row| row::expiry_of(&row));
            let is_due = expires.is_some_and(|expires| expires <= at) || self.broken.breaks(Mutant::RemovedUnseen); // rule 86
            if is_due && keys.contains(&key[1..]) {
                bytes += key.len();
                changes.push(RowChange::remove(key.clone()));
            }
        }
        if count == 0 {
            let limit = PageLimit { rows_max: READ_ROWS_MAX, bytes_max: PAGE_BYTES_MAX };
            return local.expiry.read(&view, at, &keys, limit);
        }
        if !changes.is_empty() {
            let removed = changes.len();
            let at = local.log_time.stamp(at);
            if self.note(local, Effect::new(at, changes)).is_err() {
                return Ok(false);
            }
            self.shell.observe(local.at(), Observed::Expired(removed));
        }
        local.expiry.forget(count);
        Ok(true)
    }
}

impl<S: Shell> Partitions<S> {
    /// Removes expired rows of the partitions that this node leads, in turn.
    pub(crate) fn expire(&mut self) {
        let last = self.expired_last;
        let mut left = EXPIRIES_MAX;
        let after = (Bound::Excluded(last), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(last));
        for placements in [after, before] {
            for (placement, local) in self.copies.range_mut::<PlacementId, _>(placements) {
                if local.serving && !local.set_aside && self.turn.expire(local) {
                    self.expired_last = *placement;
                    left -= 1;
                    if left == 0 {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "expire_tests.rs"]
mod tests;
