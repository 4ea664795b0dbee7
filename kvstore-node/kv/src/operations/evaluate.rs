//! Evaluation of operations: a pure function from a view to an effect and an answer. The leader evaluates each
//! operation once.

use super::effect::{Effect, RowChange};
use crate::engine::PageLimit;
use crate::exactly_once::dedup::{self, Decision, DedupLimits};
use crate::mutant::Mutant;
use crate::ranges::merged::Merged;
use crate::rows::row::{Outcome, decode_value, encode_value, value_bounds, value_key};
use crate::rows::view::{View, ViewError};
use archon_types::limits::scan_bytes_max;
use archon_types::op::Entry;
use archon_types::{Answer, ErrorDetail, ErrorKind, KeyRange, Millis, Op, OpId, Revision, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;

/// Most entries in the answer to one scan, also if more were requested (or 0, which stands for this).
pub(crate) const SCAN_ENTRIES_MAX: u32 = 4_096;

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
/// committed; for a read it needs no wait if the view showed committed rows only.
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluation {
    /// The effect to replicate, if the operation changes anything.
    pub effect: Option<Effect>,
    /// The answer for the client. With an error, nothing is changed.
    pub answer: Result<Answer, ErrorDetail>,
}

impl Evaluation {
    fn unchanged(answer: Answer) -> Self {
        Self { effect: None, answer: Ok(answer) }
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
        Op::Get { key } => Ok(Evaluation::unchanged(Answer::Value(read(view, &value_key(key))?))),
        Op::Scan { keys, order, limit } => scan(view, keys, *order, *limit),
        write => {
            match request.id.map(|id| dedup::check(id, view, at, limits)).transpose()? {
                None | Some(Decision::Apply) => {}
                Some(Decision::Repeat(outcome)) => return Ok(Evaluation::unchanged(answer(outcome))),
                Some(Decision::Refuse(refusal)) => return Ok(Evaluation { effect: None, answer: Err(refusal) }),
            }
            let (change, outcome) = apply(write, view, revision)?;
            let unrecorded = change.is_none() && limits.breaks(Mutant::FailureUnrecorded);
            let id = request.id.filter(|_| !unrecorded);
            Ok(Evaluation { effect: effect(at, change, id, outcome), answer: Ok(answer(outcome)) })
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
    Ok(Evaluation { effect: None, answer })
}

/// Evaluates as [`evaluate`] does, in a partition with `merged` as its last merge. A named write that may be a late
/// duplicate from before the merge is not done: the answer is its recorded outcome, or that it may have been applied.
/// Other records of its client prove nothing (PROTOCOL rule 50).
///
/// # Errors
/// [`ViewError`] if the partition's rows cannot be read.
pub fn evaluate_merged(
    request: Request<'_>,
    merged: Option<&Merged>,
    view: &dyn View,
    at: Millis,
    revision: Revision,
    limits: &DedupLimits,
) -> Result<Evaluation, ViewError> {
    let bars = |merged: &Merged, id: &OpId| request.op.key().is_some_and(|key| merged.bars(key, id));
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
    Ok(Evaluation { effect: None, answer })
}

fn effect(at: Millis, change: Option<RowChange>, id: Option<&OpId>, outcome: Outcome) -> Option<Effect> {
    let record = id.map(|id| dedup::recorded(id, outcome));
    let effect = Effect { record, ..Effect::new(at, Vec::from_iter(change)) };
    (record.is_some() || !effect.changes.is_empty()).then_some(effect)
}

/// Returns the change and the outcome of a write. Reads never get here.
fn apply(op: &Op, view: &dyn View, revision: Revision) -> Result<(Option<RowChange>, Outcome), ViewError> {
    let set = |row: Bytes, value: &[u8]| Some(RowChange::set(row, encode_value(revision, value)));
    Ok(match op {
        Op::Put { key, value } => (set(value_key(key), value), Outcome::Written(revision)),
        Op::Delete { key } => {
            let row = value_key(key);
            match view.get(&row)? {
                Some(_) => (Some(RowChange::remove(row)), Outcome::Deleted(true)),
                None => (None, Outcome::Deleted(false)),
            }
        }
        Op::CompareAndSet { key, expected, value } => {
            let row = value_key(key);
            let present = read(view, &row)?.map_or(Revision::ZERO, |(_, revision)| revision);
            if present == *expected {
                (set(row, value), Outcome::Written(revision))
            } else {
                (None, Outcome::ConditionFailed(present))
            }
        }
        Op::Increment { key, by } => {
            let row = value_key(key);
            let present = read(view, &row)?.map_or(Some(0), |(value, _)| number(&value));
            match present.and_then(|present| present.checked_add(*by)) {
                Some(sum) => (set(row, sum.to_string().as_bytes()), Outcome::Counter(sum, revision)),
                None => (None, Outcome::NotANumber),
            }
        }
        Op::Get { .. } | Op::Scan { .. } => {
            debug_assert!(false, "a read is not applied");
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
    }
}

fn read(view: &dyn View, row: &[u8]) -> Result<Option<(Bytes, Revision)>, ViewError> {
    Ok(view.get(row)?.map(|stored| decode_value(&stored)).transpose()?)
}

/// Parses a decimal integer without surrounding characters.
fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn scan(view: &dyn View, keys: &KeyRange, order: ScanOrder, limit: u32) -> Result<Evaluation, ViewError> {
    let (begin, end) = value_bounds(keys);
    let entries_max = if limit == 0 { SCAN_ENTRIES_MAX } else { limit.min(SCAN_ENTRIES_MAX) };
    let limit = PageLimit { rows_max: entries_max as usize, bytes_max: scan_bytes_max(entries_max) };
    let page = view.page(Bound::Included(&begin), &end, order, limit)?;
    let mut entries = Vec::with_capacity(page.rows.len());
    for row in page.rows {
        let (value, revision) = decode_value(&row.value)?;
        entries.push(Entry { key: row.key.slice(1..), value, revision });
    }
    Ok(Evaluation::unchanged(Answer::Page { entries, more: page.more, range: KeyRange::ALL }))
}

#[cfg(test)]
#[path = "evaluate_tests.rs"]
mod tests;
