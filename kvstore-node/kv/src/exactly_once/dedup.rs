//! Exactly-once: whether an operation was applied, according to its client's [`Window`] (PROTOCOL rule 24).
//!
//! The entry of an operation records it, and each replica applies that record to the window of the client. So windows are
//! the same on every replica, and no second table has to be kept in step. Failed conditions are recorded too: a late
//! duplicate might otherwise find that they hold by then.
//!
//! An operation is applied only if it is not recorded, is not below its client's done mark, and is stamped either after
//! `forgotten_through`, or at or after the beginning of the client's window (which would contain it, had it been
//! applied). Any other might be a late duplicate of a forgotten operation: [`ErrorKind::MaybeApplied`]. A client may
//! stamp an operation again, with the log time of the refusal, if all its attempts were refused.

use super::window::{Record, Window};
use crate::mutant::Mutant;
use crate::operations::effect::{Effect, RowChange};
use crate::rows::row::{FORGOTTEN_KEY, Outcome, decode_millis, encode_millis};
use crate::rows::view::{View, ViewError};
use archon_types::{ClientId, ErrorDetail, ErrorKind, Millis, OpId};
use bytes::Bytes;

const RETRY_AFTER_MS: u64 = 20;

/// Bounds on the records of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupLimits {
    /// Outcomes kept per client, at least 1; beyond, its operations are refused until it confirms some.
    pub outcomes_max: u32,
    /// Clients remembered per partition, at least 1; the least recently used are forgotten before a new one is added.
    pub clients_max: usize,
    /// Time for which a client is remembered after its last operation, in milliseconds of log time.
    pub age_ms_max: u64,
    /// Windows read at once when a new leader reads its partition's clients, at least 1.
    pub read_rows_max: usize,
    /// The rule that a test disables.
    #[cfg(any(test, feature = "mutants"))]
    pub mutant: Option<Mutant>,
}

impl Default for DedupLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl DedupLimits {
    /// Limits of a node.
    pub const DEFAULT: Self = Self {
        outcomes_max: 1_024,
        clients_max: 4_096,
        age_ms_max: 10 * 60 * 1_000,
        read_rows_max: 512,
        #[cfg(any(test, feature = "mutants"))]
        mutant: None,
    };

    /// Returns whether a test disables this rule.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn breaks(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[cfg(not(any(test, feature = "mutants")))]
    #[allow(clippy::unused_self)]
    pub(crate) const fn breaks(&self, _: Mutant) -> bool {
        false
    }
}

/// Verdict on an operation before it is evaluated.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Not applied yet: evaluate it and record the outcome.
    Apply,
    /// Evaluated before, with this outcome.
    Repeat(Outcome),
    /// Must not be evaluated.
    Refuse(ErrorDetail),
}

/// Decides whether an operation may be applied at log time `at`.
pub(crate) fn check(id: &OpId, view: &dyn View, at: Millis, limits: &DedupLimits) -> Result<Decision, ViewError> {
    if let Some(refusal) = malformed(id) {
        return Ok(Decision::Refuse(refusal));
    }
    let window = view.window(id.client)?;
    let window = window.as_deref();
    if let Some(outcome) = window.and_then(|window| window.outcome(id.number))
        && !limits.breaks(Mutant::RetryApplied)
    {
        return Ok(Decision::Repeat(outcome));
    }
    if let Some(window) = window
        && id.number < window.done_below
        && !limits.breaks(Mutant::DoneMarkIgnored)
    {
        return Ok(Decision::Refuse(maybe_applied(format!(
            "operation {} is below {1}, and its client reported all operations below {1} as done",
            id.number, window.done_below
        ))));
    }
    if id.stamp > at && !limits.breaks(Mutant::FutureStampTaken) {
        return Ok(Decision::Refuse(maybe_applied(format!(
            "the stamp {} of operation {} is after the partition's log time {at}",
            id.stamp, id.number
        ))));
    }
    let proven = window.is_some_and(|window| id.stamp >= window.created || limits.breaks(Mutant::AnyRecordProves));
    if !proven
        && !limits.breaks(Mutant::StampIgnored)
        && let Some(forgotten) = forgotten_through(view)?
        && id.stamp <= forgotten
    {
        return Ok(Decision::Refuse(maybe_applied(format!(
            "operation {} is stamped {}, and records up to {forgotten} were forgotten",
            id.number, id.stamp
        ))));
    }
    Ok(room_for(id, window, limits).map_or(Decision::Apply, Decision::Refuse))
}

/// Refuses an operation of a client that has as many outcomes as the limit allows, apart from those that it confirms.
fn room_for(id: &OpId, window: Option<&Window>, limits: &DedupLimits) -> Option<ErrorDetail> {
    let kept = window?.outcomes_from(id.done_below);
    let full = u32::try_from(kept).unwrap_or(u32::MAX) >= limits.outcomes_max;
    full.then(|| {
        let message = format!(
            "{kept} outcomes of this client are kept already, the limit is {}; finish some operations first",
            limits.outcomes_max
        );
        ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(RETRY_AFTER_MS)
    })
}

/// Returns the record of an operation that was accepted and evaluated.
pub(crate) const fn recorded(id: &OpId, outcome: Outcome) -> Record {
    Record { client: id.client, number: id.number, done_below: id.done_below, outcome }
}

/// Returns the effect that forgets a client at log time `at`, in addition to `before`: it drops the client's window, and
/// raises `forgotten_through` to the latest use of any. Returns `before` unchanged if the client has none.
///
/// # Errors
/// [`ViewError`] if rows cannot be read.
pub(crate) fn forget(
    client: ClientId,
    before: Option<Effect>,
    view: &dyn View,
    at: Millis,
    limits: &DedupLimits,
) -> Result<Option<Effect>, ViewError> {
    let Some(window) = view.window(client)? else { return Ok(before) };
    let raised = match before.as_ref().and_then(|before| before.changes.first()) {
        Some(RowChange { value: Some(value), .. }) => Some(decode_millis(value)?),
        _ => forgotten_through(view)?,
    };
    let raised = raised.map_or(window.last, |raised| raised.max(window.last));
    let mut effect = before.unwrap_or_else(|| Effect::new(at, Vec::new()));
    if !limits.breaks(Mutant::ForgottenNotRaised) {
        effect.changes = vec![RowChange::set(Bytes::from_static(FORGOTTEN_KEY), encode_millis(raised))];
    }
    effect.forget.push(client);
    Ok(Some(Effect { at, ..effect }))
}

/// Returns the log time up to which records were forgotten; `None` if none ever was.
///
/// # Errors
/// [`ViewError`] if the row cannot be read.
pub(crate) fn forgotten_through(view: &dyn View) -> Result<Option<Millis>, ViewError> {
    Ok(view.get(FORGOTTEN_KEY)?.map(|row| decode_millis(&row)).transpose()?)
}

/// Returns whether a client has a record.
pub(crate) fn is_known(client: ClientId, view: &dyn View) -> Result<bool, ViewError> {
    Ok(view.window(client)?.is_some())
}

fn malformed(id: &OpId) -> Option<ErrorDetail> {
    let message = if id.client.is_nil() {
        "the operation's client id is nil; a client draws a random one".to_owned()
    } else if id.number == 0 {
        "the operation's number is 0; numbers start at 1".to_owned()
    } else if id.done_below > id.number {
        format!("operation {} reports everything below {} as done, itself included", id.number, id.done_below)
    } else {
        return None;
    };
    Some(ErrorDetail::new(ErrorKind::InvalidArgument, message))
}

pub(crate) fn maybe_applied(why: String) -> ErrorDetail {
    let what = "it is unknown whether it was applied; an operation that was only refused may be sent again with the newest log time";
    ErrorDetail::new(ErrorKind::MaybeApplied, format!("{why}: {what}"))
}

#[cfg(test)]
#[path = "dedup_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "dedup_merge_tests.rs"]
mod merge_tests;
