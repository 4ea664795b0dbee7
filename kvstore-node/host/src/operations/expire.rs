//! Values that expire: reads of them, and the entries that remove them (PROTOCOL rules 83 to 86).

use crate::copies::local_copy::LocalCopy;
use crate::mutant::Mutant;
use crate::operations::request::{Outcome, Reply as _, Request, WaitsFor};
use crate::partitions::Partitions;
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_kv::engine::PageLimit;
use archon_kv::{
    Effect, Evaluation, PartitionView, Reader, Request as Asked, RowChange, View, ViewError, evaluate, row,
};
use archon_replica::ReplicaStatus;
use archon_types::limits::PAGE_BYTES_MAX;
use archon_types::{Answer, KeyRange, Millis, Op, PlacementId, Revision};
use bytes::Bytes;
use std::ops::Bound;

/// Most rows that one entry removes.
const REMOVED_ROWS_MAX: usize = 128;
/// Most rows that a leader reads at once to find those that expire.
const READ_ROWS_MAX: usize = 256;
/// Most entries and pages of a tick for one partition: the log of a partition has room for writes of clients besides.
const STEPS_MAX: usize = 8;
/// Most entries and pages of a tick, for all partitions together.
const ALL_STEPS_MAX: usize = 32;
/// Rows that are looked at between two looks at the time.
const ROWS_PER_LOOK: usize = 16;

/// Result of looking up a read.
#[derive(Debug)]
pub(crate) enum LookUp {
    /// The answer.
    Found(Outcome),
    /// A value is due at this time by the leader's clock, but not by an entry that this leadership has committed.
    Due(Millis),
}

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

    /// Evaluates a read of committed rows. It needs an entry first if a value is due by this leader's clock, but not by an
    /// entry that it committed: a later leader might show it again (PROTOCOL rule 84).
    pub(crate) fn look_up(&self, local: &mut LocalCopy<S>, op: &Op) -> Result<LookUp, ViewError> {
        let (expired, answer) = if let Op::Get { key } = op {
            let stored = self.value(local, key)?;
            let expires = stored.as_ref().and_then(|stored| stored.expires);
            // Most values do not expire: then no clock is read.
            let expired = expires.filter(|expires| *expires <= self.read_time(local));
            (expired, Ok(Answer::Value(stored.filter(|_| expired.is_none()))))
        } else {
            let found = self.evaluated(local, op, Reader::Committed, self.read_time(local))?;
            (found.expired, found.answer)
        };
        let unlogged = self.broken.breaks(Mutant::ExpiryUnlogged); // rule 84
        let due = expired.filter(|expires| *expires > local.waiting.decided() && !unlogged);
        Ok(due.map_or(LookUp::Found(answer), LookUp::Due))
    }

    /// Continues a read that needs an entry with a log time from `due` on. If such an entry is on its way, the read waits
    /// for it and looks again, once: otherwise each of many reads of one key would add an entry.
    pub(crate) fn read_due(&mut self, local: &mut LocalCopy<S>, mut request: Request<S::Reply>, due: Millis) {
        if !request.awaited_entry
            && let Some(seq) = local.waiting.covers(due)
        {
            request.awaited_entry = true;
            request.reply.waits(WaitsFor::Commit);
            return local.waiting.look_up_after(seq, request);
        }
        if local.replica.status() == ReplicaStatus::HandingOver {
            // It proposes nothing any longer; the next leader answers, or this one if it keeps the leadership.
            let parked = self.park_for(local, request, self.park_limits.settle_ms, WaitsFor::Leadership);
            let Some(request) = parked else { return };
            return self.write(local, request);
        }
        // A read has no name: nothing of it is recorded.
        self.write(local, Request { id: None, ..request });
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
            Answer::Page { entries, more, range: read } => Answer::Page { entries, more, range: range.and(&read) },
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

    /// Removes rows of a partition that have expired by this clock, in one entry, or reads a page of rows to find them.
    /// Returns whether there was anything to do. `has_time` is asked between some rows.
    fn expire(&mut self, local: &mut LocalCopy<S>, wall: Millis, has_time: &mut dyn FnMut() -> bool) -> bool {
        let at = wall.max(local.log_time.last());
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
        match self.expire_rows(local, at, has_time) {
            Ok(worked) => worked,
            Err(error) => {
                self.unusable(local, &error);
                false
            }
        }
    }

    fn expire_rows(
        &mut self,
        local: &mut LocalCopy<S>,
        at: Millis,
        has_time: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ViewError> {
        let Some(keys) = local.range().cloned() else { return Ok(false) };
        let view = PartitionView::new(&local.memtable, self.shell.engine(), local.placement, Reader::Newest);
        let limit = self.shell.page_limit();
        let (mut changes, mut bytes, mut count) = (Vec::new(), 0, 0);
        for key in local.expiry.due(at, REMOVED_ROWS_MAX) {
            let is_late = count > 0 && count % ROWS_PER_LOOK == 0 && !has_time();
            if is_late || limit.is_full(changes.len(), bytes, key.len()) {
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
            let has_read = local.expiry.read(&view, at, &keys, limit)?;
            if has_read && local.expiry.is_unused() {
                // Later leaders need not read the rows. The next value that expires brings the mark back.
                let mark = RowChange::remove(Bytes::from_static(row::EXPIRING_KEY));
                let at = local.log_time.stamp(at);
                // If it fails, the next leader tries again.
                let _ = self.note(local, Effect::new(at, vec![mark]));
            }
            return Ok(has_read);
        }
        if !changes.is_empty() {
            let removed = changes.len();
            let at = local.log_time.stamp(at);
            if self.note(local, Effect::new(at, changes)).is_err() {
                return Ok(false);
            }
            self.shell.observe(local.at(), CopyEvent::Expired(removed));
        }
        local.expiry.forget(count);
        Ok(true)
    }
}

impl<S: Shell> Partitions<S> {
    /// Removes expired rows of the partitions that this node leads, in turn, several entries of each while `has_time`
    /// returns true. At least one step is taken, so that busy clients do not keep rows for ever. Call it every tick.
    pub fn expire(&mut self, mut has_time: impl FnMut() -> bool) {
        let (last, wall) = (self.expired_last, self.turn.shell.wall());
        let mut left = ALL_STEPS_MAX;
        let after = (Bound::Excluded(last), Bound::Unbounded);
        let before = (Bound::Unbounded, Bound::Included(last));
        for placements in [after, before] {
            for (placement, local) in self.copies.range_mut::<PlacementId, _>(placements) {
                for _ in 0..STEPS_MAX {
                    if !local.serving || local.set_aside || !self.turn.expire(local, wall, &mut has_time) {
                        break;
                    }
                    self.expired_last = *placement;
                    left -= 1;
                    if left == 0 || !has_time() {
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
