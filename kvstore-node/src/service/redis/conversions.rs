//! Conversions between arguments, operations, answers and replies.

use super::refusal::Refusal;
use archon_resp::{NOT_AN_INTEGER, NewExpiry, Reply, parse_integer};
use archon_types::{Answer, Expiry, Millis, StoredValue};

/// A stored value, if the key is present.
pub(super) type FoundValue = Option<StoredValue>;

/// Parses an integer argument.
pub(super) fn integer(text: &[u8]) -> Result<i64, Refusal> {
    parse_integer(text).ok_or(Refusal::Error(NOT_AN_INTEGER.into()))
}

/// Returns the reply with a value.
pub(super) fn value(found: FoundValue) -> Reply {
    found.map_or(Reply::Null, |found| Reply::Bulk(found.value))
}

/// Returns the expiry of an operation; `None` if the value does not expire.
pub(super) fn expiry_of(expiry: NewExpiry) -> Option<Expiry> {
    match expiry {
        NewExpiry::Never => None,
        NewExpiry::Keep => Some(Expiry::Keep),
        NewExpiry::After(millis) => Some(Expiry::After(millis)),
        NewExpiry::At(time) => Some(Expiry::At(Millis::new(time))),
    }
}

/// Returns a time in milliseconds since 1970.
pub(super) fn unix_ms(time: Millis) -> i64 {
    i64::try_from(time.get()).unwrap_or(i64::MAX)
}

/// Returns a length as the integer of a reply.
pub(super) fn count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// Returns the refusal of a command with an answer of another operation.
pub(super) fn unexpected(answer: &Answer) -> Refusal {
    tracing::error!(?answer, "a shard gave an unexpected answer to a Redis command");
    Refusal::Unknown("an unexpected answer".to_owned())
}
