//! Evaluation of operations on several keys: reads as of one state, and transactions (PROTOCOL rule 87).

use super::effect::{Effect, RowChange};
use super::evaluate::{Evaluation, KeyState, written};
use crate::exactly_once::dedup::DedupLimits;
use crate::mutant::Mutant;
use crate::rows::row::{Outcome, encode_value, value_key, with_value_key};
use crate::rows::view::{View, ViewError};
use archon_types::transaction::within_bytes;
use archon_types::{Answer, Change, ErrorDetail, ErrorKind, Expiry, ManyKeys, Millis, Revision, Transaction};
use bytes::Bytes;

/// Most bytes of values that one operation may look at: a shard reads them in one turn.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Reads several keys of one view. It is refused once the values exceed their bound, and reads no further ones then.
pub(super) fn get_many(
    many: &ManyKeys,
    view: &dyn View,
    at: Millis,
    limits: &DedupLimits,
) -> Result<Evaluation, ViewError> {
    let mut values = Vec::with_capacity(many.keys().len());
    let (mut bytes, mut read, mut expired) = (many.bytes(), Read::default(), None);
    for key in many.keys() {
        let found = with_value_key(key, |row| KeyState::read(view, row, at, limits))?;
        if let Err(refusal) = read.count(&found) {
            return Ok(Evaluation::refused(refusal));
        }
        bytes += found.stored.as_ref().map_or(0, |stored| stored.value.len());
        if let Err(refusal) = within_bytes("the answer", bytes) {
            return Ok(Evaluation::refused(refusal));
        }
        expired = expired.max(found.expired);
        values.push(found.stored);
    }
    // As of a scan: the log time of the entry makes all due values absent.
    let effect = expired.map(|_| Effect::new(at, Vec::new()));
    Ok(Evaluation { effect, answer: Ok(Answer::Values(values)), expired })
}

/// Bytes of the values that an evaluation has read.
#[derive(Default)]
struct Read(usize);

impl Read {
    /// Counts a value, expired or not, and refuses the operation beyond the bound.
    fn count(&mut self, found: &KeyState) -> Result<(), ErrorDetail> {
        self.0 += found.bytes;
        match self.0 > READ_BYTES_MAX {
            true => {
                let why = format!(
                    "the values that the operation looks at have more than {READ_BYTES_MAX} bytes; nothing was changed: use fewer keys"
                );
                Err(ErrorDetail::new(ErrorKind::InvalidArgument, why))
            }
            false => Ok(()),
        }
    }
}

/// Changes and outcome of a transaction, or the reason why it is refused.
pub(super) type TransactionResult = Result<(Vec<RowChange>, Outcome), ErrorDetail>;

/// Returns the changes and the outcome of a transaction. Expired values that its checks met are removed, also if one of
/// them does not hold.
pub(super) fn apply(
    transaction: &Transaction,
    view: &dyn View,
    at: Millis,
    revision: Revision,
    limits: &DedupLimits,
) -> Result<TransactionResult, ViewError> {
    let mut all_read = Read::default();
    let mut read = |row: &Bytes| -> Result<Result<KeyState, ErrorDetail>, ViewError> {
        let found = KeyState::read(view, row, at, limits)?;
        Ok(all_read.count(&found).map(|()| found))
    };
    let mut changes = Vec::with_capacity(transaction.writes().len());
    let last = transaction.checks().len().saturating_sub(1);
    for (number, check) in transaction.checks().iter().enumerate() {
        let row = value_key(&check.key);
        let found = match read(&row)? {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let present = found.revision();
        changes.extend(found.removal(row));
        if present != check.expected && !(number == last && limits.breaks(Mutant::CheckSkipped)) {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            return Ok(Ok((changes, Outcome::CheckFailed(number, present))));
        }
    }
    let mut removed = 0;
    for write in transaction.writes() {
        let row = value_key(&write.key);
        match &write.change {
            Change::Put { value, expiry: None } => changes.push(RowChange::set(row, encode_value(revision, value))),
            Change::Put { value, expiry: Some(expiry) } => {
                let is_kept = *expiry == Expiry::Keep;
                let found = match if is_kept { read(&row)? } else { Ok(KeyState::default()) } {
                    Ok(found) => found,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                changes.push(written(row, value, revision, found.expiry_of_new(*expiry, at), at));
            }
            Change::Delete => {
                let found = match read(&row)? {
                    Ok(found) => found,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                removed += u32::from(found.stored.is_some());
                if found.stored.is_some() || found.is_due() {
                    changes.push(RowChange::remove(row));
                }
            }
        }
    }
    Ok(Ok((changes, Outcome::Applied(removed, revision))))
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
pub(crate) mod tests;
