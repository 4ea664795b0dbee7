//! Evaluation of operations: a pure function from a view to an effect and an answer. The leader evaluates each
//! operation once.
//!
//! A value is absent once the log time of the evaluation has reached its expiry (PROTOCOL rule 83). An evaluation that met
//! such a value has an effect: its entry carries that log time, so every later state takes the value for absent too.

use super::effect::{Effect, RowChange};
use super::transaction;
use crate::engine::PageLimit;
use crate::exactly_once::dedup::{self, Decision, DedupLimits};
use crate::mutant::Mutant;
use crate::ranges::merge_record::MergeRecord;
use crate::rows::row::{
    EXPIRING_KEY, Outcome, decode_stored, encode_stored, encode_value, expiry_of, value_bounds, value_key,
    with_value_key,
};
use crate::rows::view::{View, ViewError};
use archon_types::limits::{expiry_after, scan_bytes_max};
use archon_types::op::Entry;
use archon_types::{
    Answer, ErrorDetail, ErrorKind, Expiry, KeyRange, Millis, Op, OpId, Revision, ScanOrder, StoredValue,
};
use bytes::Bytes;
use std::ops::Bound;

/// Most entries in the answer to one scan, also if more were requested (or 0, which stands for this).
pub(crate) const SCAN_ENTRIES_MAX: u32 = 4_096;

/// Expired rows after which a scan without entries ends, with a page that states how far it came.
const PASSED_ROWS_MAX: usize = 2_048;
/// The same in bytes of keys and values. Both bound the time of one scan at its shard.
const PASSED_BYTES_MAX: usize = 1024 * 1024;
/// Least rows of a page that is read after one of which all rows have expired.
const NEXT_ROWS_MIN: u32 = 256;

/// An operation, already checked against the size limits.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Its name, if its client may retry it. Reads ignore it.
    pub id: Option<&'a OpId>,
}

/// Result of an operation.
///
/// The answer is sent once the effect is committed. Without an effect, the answer still depends on what the view
/// showed: for a write (a repeated one, or a failed condition) it must wait until every entry proposed before it is
/// committed; for a read it needs no wait if the view showed committed rows only. A read has an effect if it took an
/// expired value for absent.
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluation {
    /// The effect to replicate, if the operation changes anything.
    pub effect: Option<Effect>,
    /// The answer for the client. With an error, nothing is changed.
    pub answer: Result<Answer, ErrorDetail>,
    /// Latest expiry of the values that a read took for absent.
    pub expired: Option<Millis>,
}

impl Evaluation {
    fn unchanged(answer: Answer) -> Self {
        Self { effect: None, answer: Ok(answer), expired: None }
    }

    pub(super) const fn refused(refusal: ErrorDetail) -> Self {
        Self { effect: None, answer: Err(refusal), expired: None }
    }
}

/// Evaluates an operation over `view`. `at` is the log time of its effect, and `revision` the revision of the value it
/// may write: the position that the effect will have in the log.
///
/// # Errors
/// [`ViewError`] if the partition's rows cannot be read; the operation did nothing then.
pub fn evaluate(
    request: Request<'_>,
    view: &dyn View,
    at: Millis,
    revision: Revision,
    limits: &DedupLimits,
) -> Result<Evaluation, ViewError> {
    match request.op {
        Op::Get { key } => {
            let found = with_value_key(key, |row| KeyState::read(view, row, at, limits))?;
            let effect = found.expired.map(|_| Effect::new(at, vec![RowChange::remove(value_key(key))]));
            Ok(Evaluation { effect, answer: Ok(Answer::Value(found.stored)), expired: found.expired })
        }
        Op::Scan { keys, order, limit } => scan(view, keys, (*order, *limit), at),
        Op::GetMany(many) => transaction::get_many(many, view, at, limits),
        write => {
            match request.id.map(|id| dedup::check(id, view, at, limits)).transpose()? {
                None | Some(Decision::Apply) => {}
                Some(Decision::Repeat(outcome)) => return Ok(Evaluation::unchanged(answer(outcome))),
                Some(Decision::Refuse(refusal)) => return Ok(Evaluation::refused(refusal)),
            }
            let (changes, outcome) = match write {
                Op::Transaction(write) => match transaction::apply(write, view, at, revision, limits)? {
                    Ok(applied) => applied,
                    Err(refusal) => return Ok(Evaluation::refused(refusal)),
                },
                write => {
                    let (change, outcome) = apply(write, view, at, revision, limits)?;
                    (Vec::from_iter(change), outcome)
                }
            };
            let unrecorded = changes.is_empty() && limits.breaks(Mutant::FailureUnrecorded);
            let id = request.id.filter(|_| !unrecorded);
            let expires = |change: &RowChange| change.value.as_ref().is_some_and(|row| expiry_of(row).is_some());
            // In each such entry: a row in this copy's engine alone would not be at the next leader.
            let notes_expiry = changes.iter().any(expires);
            let mut effect = effect(at, changes, id, outcome);
            if let Some(effect) = effect.as_mut().filter(|_| notes_expiry) {
                effect.changes.push(RowChange::set(Bytes::from_static(EXPIRING_KEY), Bytes::new()));
            }
            Ok(Evaluation { effect, ..Evaluation::unchanged(answer(outcome)) })
        }
    }
}

/// Answers a write on a key that its partition has given away: its recorded outcome, or [`Moved`](ErrorKind::Moved),
/// which means that it was not done here, and will not be (PROTOCOL rule 42).
///
/// # Errors
/// [`ViewError`] if the partition's rows cannot be read.
pub fn evaluate_elsewhere(
    request: Request<'_>,
    view: &dyn View,
    at: Millis,
    limits: &DedupLimits,
) -> Result<Evaluation, ViewError> {
    let answer = match request.id.map(|id| dedup::check(id, view, at, limits)).transpose()? {
        Some(Decision::Repeat(outcome)) => Ok(answer(outcome)),
        Some(Decision::Refuse(refusal)) => Err(refusal),
        Some(Decision::Apply) | None => {
            let why = "the key belongs to another partition since this one was split; fetch the table again";
            Err(ErrorDetail::new(ErrorKind::Moved, why))
        }
    };
    Ok(Evaluation { effect: None, answer, expired: None })
}

/// Evaluates as [`evaluate`] does, in a partition with `merged` as its last merge. A named write that may be a late
/// duplicate from before the merge is not done: the answer is its recorded outcome, or that it may have been applied.
/// Other records of its client prove nothing (PROTOCOL rule 50).
///
/// # Errors
/// [`ViewError`] if the partition's rows cannot be read.
pub fn evaluate_merged(
    request: Request<'_>,
    merged: Option<&MergeRecord>,
    view: &dyn View,
    at: Millis,
    revision: Revision,
    limits: &DedupLimits,
) -> Result<Evaluation, ViewError> {
    let bars = |merged: &MergeRecord, id: &OpId| request.op.any_key(|key| merged.bars(key, id));
    let id = match merged.zip(request.id) {
        Some((merged, id)) if !request.op.is_read() && bars(merged, id) => id,
        _ => return evaluate(request, view, at, revision, limits),
    };
    if limits.breaks(Mutant::RecordTrusted) && dedup::is_known(id.client, view)? {
        return evaluate(request, view, at, revision, limits);
    }
    let answer = match dedup::check(id, view, at, limits)? {
        Decision::Repeat(outcome) => Ok(answer(outcome)),
        Decision::Refuse(refusal) => Err(refusal),
        Decision::Apply => Err(dedup::maybe_applied(format!(
            "operation {} is stamped {}, before its key came from another partition",
            id.number, id.stamp
        ))),
    };
    Ok(Evaluation { effect: None, answer, expired: None })
}

fn effect(at: Millis, changes: Vec<RowChange>, id: Option<&OpId>, outcome: Outcome) -> Option<Effect> {
    let record = id.map(|id| dedup::recorded(id, outcome));
    let effect = Effect { record, ..Effect::new(at, changes) };
    (record.is_some() || !effect.changes.is_empty()).then_some(effect)
}

/// Returns the change and the outcome of a write on one key. Others never get here.
fn apply(
    op: &Op,
    view: &dyn View,
    at: Millis,
    revision: Revision,
    limits: &DedupLimits,
) -> Result<(Option<RowChange>, Outcome), ViewError> {
    let set = |row: Bytes, value: &[u8]| Some(RowChange::set(row, encode_value(revision, value)));
    let read = |row: &Bytes| KeyState::read(view, row, at, limits);
    Ok(match op {
        Op::Put { key, value } => (set(value_key(key), value), Outcome::Written(revision)),
        Op::Delete { key } => {
            let row = value_key(key);
            let found = read(&row)?;
            let existed = found.stored.is_some();
            ((existed || found.is_due()).then(|| RowChange::remove(row)), Outcome::Deleted(existed))
        }
        Op::CompareAndSet { key, expected, value } => {
            let row = value_key(key);
            let found = read(&row)?;
            match found.revision() {
                present if present == *expected => (set(row, value), Outcome::Written(revision)),
                present => (found.removal(row), Outcome::ConditionFailed(present)),
            }
        }
        Op::PutExpiring { key, value, expected, expiry } => {
            let row = value_key(key);
            let is_blind = expected.is_none() && *expiry != Expiry::Keep;
            let found = if is_blind { KeyState::default() } else { read(&row)? };
            match expected {
                Some(expected) if found.revision() != *expected => {
                    let present = found.revision();
                    (found.removal(row), Outcome::ConditionFailed(present))
                }
                _ => {
                    let expires = found.expiry_of_new(*expiry, at);
                    (Some(written(row, value, revision, expires, at)), Outcome::Written(revision))
                }
            }
        }
        Op::Increment { key, by } => {
            let row = value_key(key);
            let found = read(&row)?;
            let present = found.stored.as_ref().map_or(Some(0), |stored| number(&stored.value));
            match present.and_then(|present| present.checked_add(*by)) {
                Some(sum) => {
                    let expires = found.stored.and_then(|stored| stored.expires);
                    let stored = StoredValue { value: sum.to_string().into(), revision, expires };
                    (Some(RowChange::set(row, encode_stored(&stored))), Outcome::Counter(sum, revision))
                }
                None => (found.removal(row), Outcome::NotANumber),
            }
        }
        Op::Get { .. } | Op::Scan { .. } | Op::GetMany(_) | Op::Transaction(_) => {
            debug_assert!(false, "it writes no single key");
            (None, Outcome::NotANumber)
        }
    })
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Written(revision) => Answer::Written { revision },
        Outcome::Deleted(existed) => Answer::Deleted { existed },
        Outcome::ConditionFailed(revision) => Answer::ConditionFailed { revision },
        Outcome::Counter(value, revision) => Answer::Counter { value, revision },
        Outcome::NotANumber => Answer::NotANumber,
        Outcome::Applied(removed, revision) => Answer::Applied { revision, removed },
        Outcome::CheckFailed(check, revision) => Answer::CheckFailed { check, revision },
    }
}

/// Returns the change that writes a value. One that is due already is removed.
pub(super) fn written(row: Bytes, value: &Bytes, revision: Revision, expires: Option<Millis>, at: Millis) -> RowChange {
    match expires {
        Some(expires) if expires <= at => RowChange::remove(row),
        _ => RowChange::set(row, encode_stored(&StoredValue { value: value.clone(), revision, expires })),
    }
}

/// A key as an operation sees it.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// Its value, unless that has expired.
    pub(super) stored: Option<StoredValue>,
    /// Expiry of a value that has expired, and of which there is a row.
    pub(super) expired: Option<Millis>,
    /// Bytes of its value, also of one that has expired.
    pub(super) bytes: usize,
}

impl KeyState {
    /// Reads a row at log time `at`.
    pub(super) fn read(view: &dyn View, row: &[u8], at: Millis, limits: &DedupLimits) -> Result<Self, ViewError> {
        let stored = view.get(row)?.map(|stored| decode_stored(&stored)).transpose()?;
        let expires = stored.as_ref().and_then(|stored| stored.expires);
        let expired = expires.filter(|expires| *expires <= at && !limits.breaks(Mutant::ExpiredSeen));
        let bytes = stored.as_ref().map_or(0, |stored| stored.value.len());
        Ok(Self { stored: stored.filter(|_| expired.is_none()), expired, bytes })
    }

    pub(super) const fn is_due(&self) -> bool {
        self.expired.is_some()
    }

    pub(super) fn revision(&self) -> Revision {
        self.stored.as_ref().map_or(Revision::ZERO, |stored| stored.revision)
    }

    /// Returns the expiry of the value that overwrites it at log time `at`.
    pub(super) fn expiry_of_new(&self, expiry: Expiry, at: Millis) -> Option<Millis> {
        match expiry {
            Expiry::Keep => self.stored.as_ref().and_then(|stored| stored.expires),
            Expiry::After(millis) => Some(expiry_after(at, millis)),
            Expiry::At(time) => Some(time),
        }
    }

    /// Returns the change of an operation that changes nothing but may have met an expired value.
    pub(super) fn removal(&self, row: Bytes) -> Option<RowChange> {
        self.is_due().then(|| RowChange::remove(row))
    }
}

/// Parses a decimal integer without surrounding characters.
fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Lists entries of one page. Expired rows count towards its limits, and if it has only such rows, more pages are read, up
/// to a bound. Beyond, the answer has no entries, promises more, and its range ends at the last row that was read.
fn scan(
    view: &dyn View,
    keys: &KeyRange,
    (order, limit): (ScanOrder, u32),
    at: Millis,
) -> Result<Evaluation, ViewError> {
    let (begin, mut end) = value_bounds(keys);
    let entries_max = if limit == 0 { SCAN_ENTRIES_MAX } else { limit.min(SCAN_ENTRIES_MAX) };
    let answer = PageLimit { rows_max: entries_max as usize, bytes_max: scan_bytes_max(entries_max) };
    let (mut limit, mut begin) = (answer, Bound::Included(begin));
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let (mut passed, mut passed_bytes, mut expired) = (0, 0, None);
    let (more, range) = loop {
        let page = view.page(begin.as_ref().map(|key| &key[..]), &end, order, limit)?;
        let last = page.rows.last().map(|row| row.key.clone());
        entries.reserve(page.rows.len().min(answer.rows_max));
        let mut rows = page.rows.into_iter().peekable();
        while let Some(row) = rows.next_if(|row| !answer.is_full(entries.len(), bytes, row.key.len() + row.value.len()))
        {
            let size = row.key.len() + row.value.len();
            let StoredValue { value, revision, expires } = decode_stored(&row.value)?;
            match expires {
                Some(expires) if expires <= at => {
                    expired = expired.max(Some(expires));
                    passed += 1;
                    passed_bytes += size;
                }
                _ => {
                    bytes += size;
                    entries.push(Entry { key: row.key.slice(1..), value, revision, expires });
                }
            }
        }
        // A page without entries has no last key to go on from.
        let Some(last) = last.filter(|_| entries.is_empty() && page.more) else {
            break (page.more || rows.peek().is_some(), KeyRange::ALL);
        };
        if passed >= PASSED_ROWS_MAX || passed_bytes >= PASSED_BYTES_MAX {
            break (true, upto(&last[1..], order));
        }
        match order {
            ScanOrder::Ascending => begin = Bound::Excluded(last),
            ScanOrder::Descending => end = last,
        }
        limit.rows_max = limit.rows_max.max(NEXT_ROWS_MIN as usize);
        limit.bytes_max = limit.bytes_max.max(scan_bytes_max(NEXT_ROWS_MIN));
    };
    let effect = expired.map(|_| Effect::new(at, Vec::new()));
    Ok(Evaluation { effect, answer: Ok(Answer::Page { entries, more, range }), expired })
}

/// Returns the keys up to this one in the order of a scan, and including it.
fn upto(last: &[u8], order: ScanOrder) -> KeyRange {
    match order {
        ScanOrder::Ascending => KeyRange { begin: Bytes::new(), end: Some(Bytes::from([last, &[0]].concat())) },
        ScanOrder::Descending => KeyRange { begin: Bytes::copy_from_slice(last), end: None },
    }
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
pub(crate) mod tests;
