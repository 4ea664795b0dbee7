//! Exactly-once: the operations that were applied, kept as ordinary rows of the partition (PROTOCOL rule 24).
//!
//! Each client has one head row and one row per recorded outcome, written by the same effect as the operation's own
//! change. So they are replicated, copied and moved with the partition, without a second table to keep in step. Failed
//! conditions are recorded too: a late duplicate might otherwise find that they hold by then.
//!
//! An operation is applied only if it has no outcome row, is not below its client's done mark, and is stamped either
//! after `forgotten_through`, or at or after the beginning of the client's record (which would contain it, had it been
//! applied). Any other might be a late duplicate of a forgotten operation: [`ErrorKind::MaybeApplied`]. A client may
//! stamp an operation again, with the log time of the refusal, if all its attempts were refused.

use crate::engine::PageLimit;
use crate::mutant::Mutant;
use crate::operations::effect::{Effect, RowChange};
use crate::rows::row::{
    ClientHead, FORGOTTEN_KEY, Outcome, client_head_bytes, client_head_key, client_outcome_key, decode_millis,
    encode_millis,
};
use crate::rows::view::{View, ViewError};
use archon_types::{ClientId, ErrorDetail, ErrorKind, KeyRange, Millis, OpId, ScanOrder};
use bytes::Bytes;
use std::ops::Bound;

/// Purge threshold: confirmed outcomes are looked for once a client has this many outcomes, and has confirmed this many
/// operations since the last purge. So not every operation must look, even of a client with hundreds in flight.
const PURGE_FROM: u32 = 64;
/// Most outcomes that may be kept per client.
pub(crate) const OUTCOMES_MAX: u32 = 4_096;
/// Rows read at once.
const PAGE_ROWS: usize = 1_024;
const RETRY_AFTER_MS: u64 = 20;

/// Bounds on the records of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupLimits {
    /// Outcomes kept per client, at least 64 and at most `OUTCOMES_MAX`; beyond, its operations are refused until it
    /// confirms some.
    pub outcomes_max: u32,
    /// Clients remembered per partition, at least 1; the least recently used are forgotten before a new one is added.
    pub clients_max: usize,
    /// Time for which a client is remembered after its last operation, in milliseconds of log time.
    pub age_ms_max: u64,
    /// Rows read at once when a new leader reads its partition's clients, at least 1.
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
    Apply(Acceptance),
    /// Evaluated before, with this outcome.
    Repeat(Outcome),
    /// Must not be evaluated.
    Refuse(ErrorDetail),
}

/// Permission to apply an operation once.
#[derive(Debug)]
pub(crate) struct Acceptance {
    id: OpId,
    head: ClientHead,
    done: Vec<Bytes>,
}

impl Acceptance {
    /// Returns all changes of an effect: the operation's own change and its records.
    pub(crate) fn record(self, change: Option<RowChange>, outcome: Outcome) -> Vec<RowChange> {
        let mut changes = Vec::with_capacity(self.done.len() + 3);
        changes.extend(change);
        changes.extend(self.done.into_iter().map(RowChange::remove));
        changes.push(RowChange::set(client_outcome_key(self.id.client, self.id.number), outcome.encode()));
        changes.push(RowChange::set(client_head_key(self.id.client), self.head.encode()));
        changes
    }
}

/// Decides whether an operation may be applied at log time `at`.
pub(crate) fn check(id: &OpId, view: &dyn View, at: Millis, limits: &DedupLimits) -> Result<Decision, ViewError> {
    if let Some(refusal) = malformed(id) {
        return Ok(Decision::Refuse(refusal));
    }
    let head = view.get(&client_head_bytes(id.client))?.map(|row| ClientHead::decode(&row)).transpose()?;
    // Clients number upwards, so most operations are above everything recorded and need no lookup.
    if head.is_some_and(|head| id.number <= head.highest)
        && !limits.breaks(Mutant::RetryApplied)
        && let Some(outcome) = view.get(&client_outcome_key(id.client, id.number))?
    {
        return Ok(Decision::Repeat(Outcome::decode(&outcome)?));
    }
    if let Some(head) = head
        && id.number < head.done_below
        && !limits.breaks(Mutant::DoneMarkIgnored)
    {
        return Ok(Decision::Refuse(maybe_applied(format!(
            "operation {} is below {}, up to which its client said it was done",
            id.number, head.done_below
        ))));
    }
    if id.stamp > at && !limits.breaks(Mutant::FutureStampTaken) {
        return Ok(Decision::Refuse(maybe_applied(format!(
            "the stamp {} of operation {} is after the partition's log time {at}",
            id.stamp, id.number
        ))));
    }
    let proven = head.is_some_and(|head| id.stamp >= head.created || limits.breaks(Mutant::AnyRecordProves));
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
    accept(*id, head, view, at, limits)
}

fn accept(
    id: OpId,
    head: Option<ClientHead>,
    view: &dyn View,
    at: Millis,
    limits: &DedupLimits,
) -> Result<Decision, ViewError> {
    let mut head =
        head.unwrap_or(ClientHead { created: at, last: at, done_below: 0, highest: 0, removed_below: 0, outcomes: 0 });
    head.last = head.last.max(at);
    head.highest = head.highest.max(id.number);
    head.done_below = head.done_below.max(id.done_below);
    let mut done = Vec::new();
    let done_with = head.done_below.saturating_sub(head.removed_below);
    if head.outcomes >= limits.outcomes_max || (head.outcomes >= PURGE_FROM && done_with >= PURGE_FROM.into()) {
        let first = client_outcome_key(id.client, head.removed_below);
        let end = client_outcome_key(id.client, head.done_below);
        let page = view.page(
            Bound::Included(&first),
            &end,
            ScanOrder::Ascending,
            PageLimit { rows_max: PAGE_ROWS, bytes_max: usize::MAX },
        )?;
        if !page.more {
            head.removed_below = head.done_below;
        }
        done.extend(page.rows.into_iter().map(|row| row.key));
        head.outcomes = head.outcomes.saturating_sub(u32::try_from(done.len()).unwrap_or(u32::MAX));
    }
    if head.outcomes >= limits.outcomes_max {
        let message = format!(
            "{} outcomes of this client are kept already, the limit is {}; finish some operations first",
            head.outcomes, limits.outcomes_max
        );
        let refusal = ErrorDetail::new(ErrorKind::Overloaded, message).with_retry_after_ms(RETRY_AFTER_MS);
        return Ok(Decision::Refuse(refusal));
    }
    head.outcomes += 1;
    Ok(Decision::Apply(Acceptance { id, head, done }))
}

/// Returns the effect that forgets a client at log time `at`, in addition to `before`: it removes the client's rows,
/// and raises `forgotten_through` to the latest use of any. Returns `before` unchanged if the client has no record.
///
/// # Errors
/// [`ViewError`] if its rows cannot be read.
pub(crate) fn forget(
    client: ClientId,
    before: Option<Effect>,
    view: &dyn View,
    at: Millis,
    limits: &DedupLimits,
) -> Result<Option<Effect>, ViewError> {
    let head_key = client_head_key(client);
    let Some(head) = view.get(&head_key)? else { return Ok(before) };
    let head = ClientHead::decode(&head)?;
    let raised = match before.as_ref().and_then(|before| before.changes.first()) {
        Some(RowChange { key, value: Some(value) }) if key == FORGOTTEN_KEY => Some(decode_millis(value)?),
        _ => forgotten_through(view)?,
    };
    let forgotten = RowChange::set(
        Bytes::from_static(FORGOTTEN_KEY),
        encode_millis(raised.map_or(head.last, |raised| raised.max(head.last))),
    );
    let mut changes = before.map(|before| before.changes).unwrap_or_default();
    match changes.first_mut().filter(|first| first.key == FORGOTTEN_KEY) {
        Some(first) => *first = forgotten,
        None if limits.breaks(Mutant::ForgottenNotRaised) => {}
        None => changes.insert(0, forgotten),
    }
    let KeyRange { begin, end } = KeyRange::of_prefix(head_key);
    debug_assert!(end.is_some(), "a row's key begins with its kind, which is never 0xFF");
    let end = end.unwrap_or_default();
    let mut from = Bound::Included(begin);
    loop {
        let limit = PageLimit { rows_max: PAGE_ROWS, bytes_max: usize::MAX };
        let page = view.page(from.as_ref().map(|key| &key[..]), &end, ScanOrder::Ascending, limit)?;
        let last = page.rows.last().map(|row| row.key.clone());
        changes.extend(page.rows.into_iter().map(|row| RowChange::remove(row.key)));
        match last {
            Some(last) if page.more => from = Bound::Excluded(last),
            _ => return Ok(Some(Effect::new(at, changes))),
        }
    }
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
    Ok(view.get(&client_head_bytes(client))?.is_some())
}

fn malformed(id: &OpId) -> Option<ErrorDetail> {
    let message = if id.client.is_nil() {
        "the operation's client id is nil; a client draws a random one".to_owned()
    } else if id.number == 0 {
        "the operation's number is 0; numbers start at 1".to_owned()
    } else if id.done_below > id.number {
        format!("operation {} says that everything below {} is done, itself included", id.number, id.done_below)
    } else {
        return None;
    };
    Some(ErrorDetail::new(ErrorKind::InvalidArgument, message))
}

pub(crate) fn maybe_applied(why: String) -> ErrorDetail {
    let what = "whether it was applied cannot be told; one that was only ever refused may be sent again with the newest log time";
    ErrorDetail::new(ErrorKind::MaybeApplied, format!("{why}: {what}"))
}

#[cfg(test)]
#[path = "dedup_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "dedup_merge_tests.rs"]
mod merge_tests;
