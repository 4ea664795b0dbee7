//! L: every partition, and so every key, is linearizable; a scan sees one moment.
//!
//! The committed log gives the order of all writes of a partition. An operation is explained by a position: it saw the
//! state after the log prefix up to that position, which is neither below the position of any operation that ended
//! before this one began, nor beyond the commit position. An answered write names its position; so does a read of a
//! value, from below. For all others the lowest position that explains the answer is chosen: it constrains later
//! operations least, so the check is incremental and exact. One position is stored, the highest of any finished
//! operation, and each operation stores its value at its own begin.
//!
//! The first entry with a log time at or after the expiry of a value ends it.

use crate::check::violation::Violation;
use archon_kv::Effect;
use archon_kv::row::{KIND_VALUE, decode_stored};
use archon_types::op::Entry;
use archon_types::{
    Change, Check, Expiry, KeyRange, Millis, Op, Revision, ScanOrder, Seq, StoredValue, Transaction, Write,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// History of one partition.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Writes to each key by position; `None` for a delete.
    keys: BTreeMap<Bytes, BTreeMap<u64, Option<Bytes>>>,
    /// Circumstances of the writes, by position.
    written: BTreeMap<Bytes, BTreeMap<u64, WriteContext>>,
    /// Positions at which values expired, rather than being deleted.
    ended: BTreeSet<(Bytes, u64)>,
    /// Log time of the last entry.
    log_time: Millis,
    /// Deletes without an id that no answer has claimed.
    unclaimed: BTreeSet<(Bytes, u64)>,
    /// The highest position of a finished operation.
    floor: u64,
}

/// Circumstances of a write.
#[derive(Clone, Copy, Debug)]
struct WriteContext {
    /// Expiry of the value.
    expires: Option<Millis>,
    /// Log time of the entry.
    time: Millis,
    /// The value that it replaced, unless that had expired: its revision and expiry.
    before: Option<(u64, Option<Millis>)>,
}

/// Request of a scan: key range, order, and limit (0: unlimited).
pub(crate) type ScanRequest<'a> = (&'a KeyRange, ScanOrder, u32);

impl History {
    /// Records a committed effect; `named` if it names its operation.
    pub(super) fn committed(&mut self, at: Seq, effect: &Effect, named: bool) -> Result<(), Violation> {
        if let Some(range) = &effect.clear {
            for (_, writes) in self.keys.iter_mut().filter(|(key, _)| range.contains(key)) {
                writes.insert(at.get(), None);
            }
        }
        self.log_time = effect.at;
        self.expire(at);
        for change in effect.changes.iter().filter(|change| change.key.first() == Some(&KIND_VALUE)) {
            let key = change.key.slice(1..);
            let value = match &change.value {
                None => None,
                Some(row) => {
                    let stored = decode_stored(row).or_else(|error| violated(error.to_string()))?;
                    let revision = stored.revision;
                    if revision.get() != at.get() {
                        return violated(format!("the value written at {at} says that its revision is {revision}"));
                    }
                    if let Some(expires) = stored.expires
                        && expires <= effect.at
                    {
                        return violated(format!("the value written at {at} expires at {expires}, before its entry"));
                    }
                    let before = self.value_at(&key, u64::MAX).map(|(position, _)| position);
                    let before = before.map(|position| (position, self.expiry_at(&key, position)));
                    let written = WriteContext { expires: stored.expires, time: effect.at, before };
                    self.written.entry(key.clone()).or_default().insert(at.get(), written);
                    Some(stored.value)
                }
            };
            if value.is_none() && self.value_at(&key, u64::MAX).is_none() {
                continue; // A row that has expired is removed.
            }
            if value.is_none() && !named {
                self.unclaimed.insert((key.clone(), at.get()));
            }
            self.keys.entry(key).or_default().insert(at.get(), value);
        }
        Ok(())
    }

    /// Ends the values that have expired by the log time, at this position.
    pub(super) fn expire(&mut self, at: Seq) {
        let expires = |key: &&Bytes| self.value_at(key, u64::MAX).is_some() && self.has_expired(key, self.log_time);
        let expired: Vec<Bytes> = self.keys.keys().filter(expires).cloned().collect();
        for key in expired {
            self.ended.insert((key.clone(), at.get()));
            self.keys.entry(key).or_default().insert(at.get(), None);
        }
    }

    /// Returns whether the last value of a key has expired by log time `at`, and its row may still be there.
    pub(super) fn has_expired(&self, key: &Bytes, at: Millis) -> bool {
        let Some(writes) = self.keys.get(key) else { return false };
        let expires = |position: &u64| self.expiry_at(key, *position);
        match writes.iter().next_back() {
            Some((position, Some(_))) => expires(position).is_some_and(|expires| expires <= at),
            // It expired at an earlier entry.
            Some((position, None)) => {
                let before = writes.range(..position).next_back();
                before.is_some_and(|(position, value)| {
                    value.is_some() && expires(position).is_some_and(|expires| expires <= at)
                })
            }
            None => false,
        }
    }

    /// Returns the history up to a position.
    pub(super) fn until(&self, kept: Seq) -> Self {
        let kept = kept.get();
        let upto = |writes: &BTreeMap<u64, Option<Bytes>>| {
            writes.range(..=kept).map(|(at, value)| (*at, value.clone())).collect::<BTreeMap<_, _>>()
        };
        let keys = self.keys.iter().map(|(key, writes)| (key.clone(), upto(writes)));
        let unclaimed = self.unclaimed.iter().filter(|(_, at)| *at <= kept).cloned();
        let written = self.written.iter().map(|(key, writes)| {
            let kept = writes.range(..=kept).map(|(at, written)| (*at, *written));
            (key.clone(), kept.collect())
        });
        let ended = self.ended.iter().filter(|(_, at)| *at <= kept).cloned();
        Self {
            keys: keys.collect(),
            written: written.collect(),
            ended: ended.collect(),
            log_time: self.log_time,
            unclaimed: unclaimed.collect(),
            floor: self.floor.min(kept),
        }
    }

    /// Returns the model restricted to these keys.
    pub(super) fn within(mut self, range: &KeyRange) -> Self {
        self.keys.retain(|key, _| range.contains(key));
        self.written.retain(|key, _| range.contains(key));
        self.ended.retain(|(key, _)| range.contains(key));
        self.unclaimed.retain(|(key, _)| range.contains(key));
        self
    }

    /// Adds the history of keys from another partition; all later positions are higher.
    pub(super) fn absorb(&mut self, other: Self, range: &KeyRange) {
        self.keys.retain(|key, _| !range.contains(key));
        self.written.retain(|key, _| !range.contains(key));
        self.ended.retain(|(key, _)| !range.contains(key));
        self.unclaimed.retain(|(key, _)| !range.contains(key));
        self.keys.extend(other.keys);
        self.written.extend(other.written);
        self.ended.extend(other.ended);
        self.unclaimed.extend(other.unclaimed);
        self.floor = self.floor.max(other.floor);
    }

    /// Returns the minimum position of an operation that begins now.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Checks the answer to a write that began at `floor`: it wrote `value` as `revision`, its condition held, and the
    /// expiry follows from the operation and the log time of its entry.
    pub(crate) fn wrote(
        &mut self,
        op: &Op,
        key: &Bytes,
        floor: u64,
        revision: Revision,
        value: &Bytes,
    ) -> Result<(), Violation> {
        let at = revision.get();
        if at <= floor {
            return violated(format!("a write of {key:?} became revision {at}, but {floor} was seen before it began"));
        }
        let written = self.written.get(key).and_then(|writes| writes.get(&at)).copied();
        if let Op::PutExpiring { expiry: Expiry::At(time), .. } = op
            && written.is_none()
        {
            // It was due already.
            let gone = self.keys.get(key).is_some_and(|writes| writes.get(&at) == Some(&None));
            if !gone || *time > self.log_time {
                return violated(format!("{key:?} is said to be written at {at}, until {time}"));
            }
            self.finished(at);
            return Ok(());
        }
        self.is_there(key, at, Some(value))?;
        if let Some(written) = written {
            written.fits(op, key, at)?;
        }
        self.finished(at);
        Ok(())
    }

    /// Checks the answer to a read that began at `floor`: it saw `revision`, and possibly its value.
    pub(crate) fn saw(
        &mut self,
        key: &Bytes,
        floor: u64,
        revision: Revision,
        value: Option<&Bytes>,
    ) -> Result<(), Violation> {
        let at = revision.get();
        self.is_there(key, at, value)?;
        if let Some((next, _)) = self.next_write(key, at).filter(|(next, _)| *next <= floor) {
            return violated(format!(
                "revision {at} of {key:?} was seen, but it was written at {next}, and {floor} was seen before"
            ));
        }
        self.finished(at);
        Ok(())
    }

    /// Checks the answer to an operation that began at `floor`: the key was absent.
    pub(crate) fn missed(&mut self, key: &Bytes, floor: u64) -> Result<(), Violation> {
        if self.value_at(key, floor).is_none() {
            return Ok(());
        }
        let writes = self.keys.get(key).into_iter().flat_map(|writes| writes.range((Excluded(floor), Unbounded)));
        let gone = writes.into_iter().find(|(_, value)| value.is_none()).map(|(at, _)| *at);
        let Some(at) = gone else {
            return violated(format!(
                "no {key:?} was found, but it was there at {floor} and has not been deleted since"
            ));
        };
        self.finished(at);
        Ok(())
    }

    /// Checks the answer to a delete that began at `floor`: the key was present. `named` contains the position of
    /// effect of a delete with an id.
    pub(crate) fn deleted(&mut self, key: &Bytes, floor: u64, named: Option<Option<Seq>>) -> Result<(), Violation> {
        let at = match named {
            Some(at) => at.map(Seq::get),
            // Any candidate is valid: the lowest leaves most to operations that began later.
            None => {
                let mut left = self.unclaimed.range((Excluded((key.clone(), floor)), Unbounded));
                let found = left.next().filter(|(of, _)| of == key).cloned();
                found.and_then(|found| self.unclaimed.take(&found)).map(|(_, at)| at)
            }
        };
        let deletes = |at: u64| {
            let is_gone = self.keys.get(key).is_some_and(|writes| writes.get(&at) == Some(&None));
            is_gone && !self.ended.contains(&(key.clone(), at))
        };
        match at {
            Some(at) if at > floor && deletes(at) => {
                self.finished(at);
                Ok(())
            }
            _ => violated(format!("{key:?} is said to be deleted after {floor}, but the log does so at {at:?}")),
        }
    }

    /// Checks a page that answers a scan which began at `floor`.
    pub(crate) fn listed(
        &mut self,
        asked: ScanRequest<'_>,
        floor: u64,
        entries: &[Entry],
        more: bool,
    ) -> Result<(), Violation> {
        let changes = self.keys.values().flat_map(|writes| writes.range((Excluded(floor), Unbounded)));
        let moments: BTreeSet<u64> = changes.map(|(at, _)| *at).chain([floor]).collect();
        let Some(at) = moments.into_iter().find(|at| self.is_page_at(asked, *at, entries, more)) else {
            let (now, _) = self.page_at(asked, u64::MAX);
            return violated(format!(
                "a scan of {asked:?} from {floor} on gave {entries:?}, as at no moment; now {now:?}"
            ));
        };
        self.finished(at);
        Ok(())
    }

    /// Checks the answer to a read of several keys that began at `floor`: it saw one moment.
    pub(crate) fn saw_together(
        &mut self,
        keys: &[Bytes],
        floor: u64,
        values: &[Option<StoredValue>],
    ) -> Result<(), Violation> {
        let Some(at) = self.find_moment(keys, floor, values) else {
            return violated(format!("a read of {keys:?} from {floor} on gave {values:?}, as at no moment"));
        };
        self.finished(at);
        Ok(())
    }

    /// Returns the first position from `floor` on at which these keys have these values.
    pub(crate) fn find_moment(&self, keys: &[Bytes], floor: u64, values: &[Option<StoredValue>]) -> Option<u64> {
        let writes = keys.iter().filter_map(|key| self.keys.get(key));
        let later = writes.flat_map(|writes| writes.range((Excluded(floor), Unbounded)));
        let moments: BTreeSet<u64> = later.map(|(at, _)| *at).chain([floor]).collect();
        let stored = |key: &Bytes, position: u64| {
            let (at, value) = self.value_at(key, position)?;
            Some(StoredValue { expires: self.expiry_at(key, at), ..StoredValue::new(value.clone(), Revision::new(at)) })
        };
        let is_seen = |at: &u64| keys.iter().zip(values).all(|(key, value)| stored(key, *at) == *value);
        moments.into_iter().find(is_seen).filter(|_| keys.len() == values.len())
    }

    /// Checks the answer to a transaction that began at `floor`: its checks held before its entry, which has all its
    /// writes.
    pub(crate) fn transacted(
        &mut self,
        transaction: &Transaction,
        floor: u64,
        revision: Revision,
        removed: u32,
    ) -> Result<(), Violation> {
        let at = revision.get();
        if at <= floor {
            return violated(format!("a transaction became revision {at}, but {floor} was seen before it began"));
        }
        for Check { key, expected } in transaction.checks() {
            let found = self.revision_before(key, at);
            if found != *expected {
                return violated(format!("a transaction at {at} needed {key:?} at {expected}, but it had {found}"));
            }
        }
        let mut gone = 0;
        for Write { key, change } in transaction.writes() {
            match change {
                Change::Put { value, expiry } => {
                    let op = Op::write(key.clone(), value.clone(), None, *expiry);
                    self.wrote(&op, key, floor, revision, value)?;
                }
                Change::Delete if self.value_at(key, at).is_some() => {
                    return violated(format!("a transaction at {at} deleted {key:?}, which is there after it"));
                }
                Change::Delete => gone += u32::from(self.revision_before(key, at) != Revision::ZERO),
            }
        }
        if gone != removed {
            return violated(format!("a transaction at {at} removed {gone} values, and answered {removed}"));
        }
        self.finished(at);
        Ok(())
    }

    /// Returns the revision of a key as an entry at a position finds it.
    fn revision_before(&self, key: &Bytes, at: u64) -> Revision {
        let has_expired = self.ended.contains(&(key.clone(), at));
        let before = at.checked_sub(1).filter(|_| !has_expired);
        before.and_then(|before| self.value_at(key, before)).map_or(Revision::ZERO, |(at, _)| Revision::new(at))
    }

    /// Returns whether a scan at a position may answer with this page. Rows of expired values count towards its limit, so
    /// it may end early.
    fn is_page_at(&self, asked: ScanRequest<'_>, position: u64, entries: &[Entry], more: bool) -> bool {
        let (expected, expects_more) = self.page_at(asked, position);
        if entries == expected && more == expects_more {
            return true;
        }
        let expires = |writes: &BTreeMap<u64, WriteContext>| writes.values().any(|written| written.expires.is_some());
        let any_expires = self.written.iter().any(|(key, writes)| asked.0.contains(key) && expires(writes));
        any_expires && more && !entries.is_empty() && expected.starts_with(entries)
    }

    /// Returns the page that a scan reads at a position.
    fn page_at(&self, (asked, order, limit): ScanRequest<'_>, position: u64) -> (Vec<Entry>, bool) {
        let keys = self.keys.keys().filter(|key| asked.contains(key));
        let present = keys.filter_map(|key| {
            let (at, value) = self.value_at(key, position)?;
            let expires = self.expiry_at(key, at);
            Some(Entry { key: key.clone(), value: value.clone(), revision: Revision::new(at), expires })
        });
        let limit = if limit == 0 { usize::MAX } else { limit as usize };
        let mut all: Vec<Entry> = present.collect();
        if order == ScanOrder::Descending {
            all.reverse();
        }
        let more = all.len() > limit;
        all.truncate(limit);
        (all, more)
    }

    /// Returns a key's value after the log up to a position, and where it was written.
    fn value_at(&self, key: &Bytes, position: u64) -> Option<(u64, &Bytes)> {
        let (at, value) = self.keys.get(key)?.range(..=position).next_back()?;
        value.as_ref().map(|value| (*at, value))
    }

    /// Returns the expiry of the value of a key that was written at a position.
    fn expiry_at(&self, key: &Bytes, position: u64) -> Option<Millis> {
        self.written.get(key)?.get(&position)?.expires
    }

    fn next_write(&self, key: &Bytes, after: u64) -> Option<(u64, &Option<Bytes>)> {
        self.keys.get(key)?.range((Excluded(after), Unbounded)).next().map(|(at, value)| (*at, value))
    }

    fn is_there(&self, key: &Bytes, at: u64, value: Option<&Bytes>) -> Result<(), Violation> {
        let found = self.keys.get(key).and_then(|writes| writes.get(&at)).and_then(Option::as_ref);
        if found.is_some_and(|found| value.is_none_or(|value| value == found)) {
            return Ok(());
        }
        violated(format!("an answer says that {key:?} is {value:?} at {at}, committed is {found:?}"))
    }

    fn finished(&mut self, at: u64) {
        self.floor = self.floor.max(at);
    }
}

impl WriteContext {
    /// Checks a write at a position against its operation.
    fn fits(self, op: &Op, key: &Bytes, at: u64) -> Result<(), Violation> {
        let present = self.before.map_or(Revision::ZERO, |(revision, _)| Revision::new(revision));
        let kept = self.before.and_then(|(_, expires)| expires);
        let (expected, expires) = match op {
            Op::CompareAndSet { expected, .. } => (Some(*expected), None),
            Op::PutExpiring { expected, expiry, .. } => {
                let expires = match expiry {
                    Expiry::Keep => kept,
                    Expiry::After(millis) => Some(self.time.plus(*millis)),
                    Expiry::At(time) => Some(*time),
                };
                (*expected, expires)
            }
            Op::Increment { .. } => (None, kept),
            _ => (None, None),
        };
        if let Some(expected) = expected.filter(|expected| *expected != present) {
            return violated(format!("{key:?} was written at {at} for revision {expected}, but had {present}"));
        }
        if expires != self.expires {
            let found = self.expires;
            return violated(format!("{op:?} at {at}, at {}, gave the expiry {found:?}, not {expires:?}", self.time));
        }
        Ok(())
    }
}

fn violated<T>(detail: String) -> Result<T, Violation> {
    Err(Violation::NotLinearizable { detail })
}

#[cfg(test)]
#[path = "linearizable_tests.rs"]
mod tests;
