//! Commands that are one operation on one key, and the replies that its answer gives.

use super::conversions::{FoundValue, count, expiry_of, integer, unexpected, unix_ms, value};
use super::refusal::{CommandResult, Refusal};
use super::values::digest_text;
use archon_resp::{Command, CommandKind, Condition, ExpiryUnit, NOT_AN_INTEGER, Reply, SetOptions};
use archon_types::{Answer, Op, Revision, StoredValue};
use bytes::Bytes;

/// A command that is one operation.
pub(super) struct SingleCommand {
    pub(super) op: Op,
    pub(super) reply: ReplyForm,
}

/// Form of the reply to a [`SingleCommand`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReplyForm {
    /// The value.
    Value,
    /// A list of the value alone.
    List,
    /// 1 if the key is present, 0 if it is absent.
    Presence,
    /// The length of the value.
    Length,
    /// A part of the value, with these positions.
    Range(i64, i64),
    /// The name of the type.
    Type,
    /// The digest of the value.
    Digest,
    /// The expiry, as this command returns it.
    Expiry(CommandKind),
    /// `OK`; nothing if the condition does not hold.
    Ok,
    /// 1 for a write; 0 if the condition does not hold.
    IsWritten,
    /// 1 if a key was deleted, 0 if it was absent.
    IsDeleted,
    /// The sum.
    Counter,
}

impl SingleCommand {
    /// Returns the operation of a request with a valid number of arguments; `None` if it has several keys, or needs more
    /// than one operation. `now_ms` returns the Unix time in milliseconds.
    pub(super) fn of(command: &Command, request: &[Bytes], now_ms: impl Fn() -> i64) -> Option<Result<Self, Refusal>> {
        let key = request.get(1)?.clone();
        let is_alone = request.len() == 2;
        let write = |value: &Bytes, options: SetOptions, reply| {
            let expected = match options {
                SetOptions { condition: None, returns_old: false, .. } => None,
                SetOptions { condition: Some(Condition::Absent), returns_old: false, .. } => Some(Revision::ZERO),
                _ => return None,
            };
            let op = Op::write(key.clone(), value.clone(), expected, options.expiry.and_then(expiry_of));
            Some(Self { op, reply })
        };
        let read = |reply| Ok(Self { op: Op::Get { key: key.clone() }, reply });
        let add = |by| Ok(Self { op: Op::Increment { key: key.clone(), by }, reply: ReplyForm::Counter });
        Some(match command.kind {
            CommandKind::Get => read(ReplyForm::Value),
            CommandKind::MGet if is_alone => read(ReplyForm::List),
            CommandKind::Exists | CommandKind::Touch if is_alone => read(ReplyForm::Presence),
            CommandKind::StrLen => read(ReplyForm::Length),
            CommandKind::GetRange | CommandKind::Substr => {
                let range = integer(&request[2]).and_then(|begin| Ok((begin, integer(&request[3])?)));
                range.and_then(|(begin, end)| read(ReplyForm::Range(begin, end)))
            }
            CommandKind::Type => read(ReplyForm::Type),
            CommandKind::Digest => read(ReplyForm::Digest),
            CommandKind::Ttl | CommandKind::PTtl | CommandKind::ExpireTime | CommandKind::PExpireTime => {
                read(ReplyForm::Expiry(command.kind))
            }
            CommandKind::Del | CommandKind::Unlink if is_alone => {
                Ok(Self { op: Op::Delete { key: key.clone() }, reply: ReplyForm::IsDeleted })
            }
            CommandKind::Set => match SetOptions::parse(&request[3..], now_ms()) {
                Ok(options) => Ok(write(&request[2], options, ReplyForm::Ok)?),
                Err(text) => Err(text.into()),
            },
            CommandKind::MSet if request.len() == 3 => Ok(write(&request[2], SetOptions::default(), ReplyForm::Ok)?),
            CommandKind::SetNx => {
                let options = SetOptions { condition: Some(Condition::Absent), ..SetOptions::default() };
                Ok(write(&request[2], options, ReplyForm::IsWritten)?)
            }
            CommandKind::SetEx | CommandKind::PSetEx => {
                let unit = ExpiryUnit { seconds: command.kind == CommandKind::SetEx, absolute: false };
                match unit.parse_new(&request[2], command.name, now_ms()) {
                    Ok(expiry) => {
                        let options = SetOptions { expiry: Some(expiry), ..SetOptions::default() };
                        Ok(write(&request[3], options, ReplyForm::Ok)?)
                    }
                    Err(text) => Err(text.into()),
                }
            }
            CommandKind::Incr => add(1),
            CommandKind::Decr => add(-1),
            CommandKind::IncrBy => integer(&request[2]).and_then(add),
            CommandKind::DecrBy => integer(&request[2])
                .and_then(|by| by.checked_neg().ok_or_else(|| Refusal::new("ERR decrement would overflow")))
                .and_then(add),
            _ => return None,
        })
    }
}

impl ReplyForm {
    /// Returns the reply for an answer. `now_ms` returns the Unix time in milliseconds.
    pub(super) fn reply(self, answer: Answer, now_ms: impl Fn() -> i64) -> CommandResult {
        let is_write = matches!(self, Self::Ok | Self::IsWritten | Self::IsDeleted | Self::Counter);
        match answer {
            Answer::Value(found) if !is_write => Ok(self.read(found, now_ms)),
            Answer::Written { .. } if self == Self::Ok => Ok(Reply::OK),
            Answer::ConditionFailed { .. } if self == Self::Ok => Ok(Reply::Null),
            Answer::Written { .. } if self == Self::IsWritten => Ok(Reply::Integer(1)),
            Answer::ConditionFailed { .. } if self == Self::IsWritten => Ok(Reply::Integer(0)),
            Answer::Deleted { existed } if self == Self::IsDeleted => Ok(Reply::Integer(existed.into())),
            Answer::Counter { value, .. } if self == Self::Counter => Ok(Reply::Integer(value)),
            Answer::NotANumber if self == Self::Counter => Err(Refusal::new(NOT_AN_INTEGER)),
            other => Err(unexpected(&other)),
        }
    }

    fn read(self, found: FoundValue, now_ms: impl Fn() -> i64) -> Reply {
        match self {
            Self::List => Reply::Array(vec![value(found)]),
            Self::Presence => Reply::Integer(found.is_some().into()),
            Self::Length => Reply::Integer(count(found.map_or(0, |found| found.value.len()))),
            Self::Range(begin, end) => {
                let value = found.map_or_else(Bytes::new, |found| found.value);
                Reply::Bulk(part(&value, begin, end))
            }
            Self::Type => Reply::Status(if found.is_some() { "string" } else { "none" }),
            Self::Digest => found.map_or(Reply::Null, |found| Reply::bulk(digest_text(&found.value))),
            Self::Expiry(kind) => Reply::Integer(expiry_reply(kind, found.as_ref(), now_ms)),
            _ => value(found),
        }
    }
}

/// Returns the reply to a question for the expiry of a key: -2 if it is absent, -1 if it does not expire.
fn expiry_reply(kind: CommandKind, found: Option<&StoredValue>, now_ms: impl Fn() -> i64) -> i64 {
    let Some(found) = found else { return -2 };
    let Some(at) = found.expires.map(unix_ms) else { return -1 };
    let left = || at.saturating_sub(now_ms()).max(0);
    // As Redis does, seconds are rounded.
    let seconds = |millis: i64| millis.saturating_add(500) / 1_000;
    match kind {
        CommandKind::Ttl => seconds(left()),
        CommandKind::PTtl => left(),
        CommandKind::ExpireTime => seconds(at),
        _ => at,
    }
}

/// Returns the bytes from `begin` to `end`, both included; negative positions count from the end.
fn part(value: &Bytes, begin: i64, end: i64) -> Bytes {
    let length = count(value.len());
    if begin < 0 && end < 0 && begin > end {
        return Bytes::new();
    }
    let at = |position: i64| if position < 0 { (length + position.max(-length)).max(0) } else { position };
    let (begin, end) = (at(begin), at(end).min(length - 1));
    match (usize::try_from(begin), usize::try_from(end)) {
        (Ok(begin), Ok(end)) if begin <= end => value.slice(begin..=end),
        _ => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_resp::lookup;
    use archon_types::Millis;

    fn single(text: &str) -> Option<Result<SingleCommand, Refusal>> {
        let request: Vec<Bytes> = text.split(' ').map(|part| Bytes::copy_from_slice(part.as_bytes())).collect();
        SingleCommand::of(lookup(&request).expect("a command"), &request, || 1_000)
    }

    #[test]
    fn command_that_needs_more_operations_is_not_single() {
        for text in [
            "SET k v XX",
            "SET k v GET",
            "SET k v IFEQ a",
            "GETSET k v",
            "APPEND k v",
            "MGET {t}1 {t}2",
            "DEL {t}1 {t}2",
            "EXISTS {t}1 {t}2",
            "MSET {t}1 v {t}2 v",
            "MSETNX k v",
            "EXPIRE k 1",
            "PING",
            "WATCH k",
            "MULTI",
        ] {
            assert!(single(text).is_none(), "{text}");
        }
        for text in ["GET k", "MGET k", "DEL k", "SET k v", "set k v ex 10 nx", "MSET k v", "INCRBY k 2", "PTTL k"] {
            assert!(matches!(single(text), Some(Ok(_))), "{text}");
        }
        for text in ["SET k v EX", "SET k v EX 0", "INCRBY k x", "GETRANGE k 0 x", "SETEX k 0 v"] {
            assert!(matches!(single(text), Some(Err(_))), "{text}");
        }
    }

    #[test]
    fn answer_of_other_operation_is_unexpected() {
        let written = || Answer::Written { revision: Revision::new(1) };
        assert_eq!(ReplyForm::Ok.reply(written(), || 0), Ok(Reply::OK));
        assert_eq!(ReplyForm::IsWritten.reply(written(), || 0), Ok(Reply::Integer(1)));
        for (form, answer) in
            [(ReplyForm::Value, written()), (ReplyForm::Counter, written()), (ReplyForm::Ok, Answer::Value(None))]
        {
            assert!(matches!(form.reply(answer, || 0), Err(Refusal::Unknown(_))), "{form:?}");
        }
    }

    #[test]
    fn ranges_are_those_of_redis() {
        let value = Bytes::from_static(b"This is a string");
        let of = |begin, end| part(&value, begin, end);
        assert_eq!(of(0, 3), &b"This"[..]);
        assert_eq!(of(-3, -1), &b"ing"[..]);
        assert_eq!(of(0, -1), value);
        assert_eq!(of(10, 100), &b"string"[..]);
        assert_eq!(of(i64::MIN, i64::MAX), value);
        for (begin, end) in [(5, 3), (-1, -3), (100, 200), (i64::MAX, i64::MIN)] {
            assert_eq!(of(begin, end), Bytes::new(), "{begin} {end}");
        }
        assert_eq!(part(&Bytes::new(), 0, -1), Bytes::new());
    }

    #[test]
    fn expiry_is_reported_as_in_redis() {
        let stored = |expires: Option<u64>| StoredValue {
            expires: expires.map(Millis::new),
            ..StoredValue::new(Bytes::new(), Revision::new(1))
        };
        let kinds = [CommandKind::Ttl, CommandKind::PTtl, CommandKind::ExpireTime, CommandKind::PExpireTime];
        let replies = |found: Option<StoredValue>| kinds.map(|kind| expiry_reply(kind, found.as_ref(), || 10_000));
        assert_eq!(replies(None), [-2; 4]);
        assert_eq!(replies(Some(stored(None))), [-1; 4]);
        assert_eq!(replies(Some(stored(Some(11_499)))), [1, 1_499, 11, 11_499]);
        assert_eq!(replies(Some(stored(Some(11_500)))), [2, 1_500, 12, 11_500]);
        assert_eq!(replies(Some(stored(Some(9_000)))), [0, 0, 9, 9_000], "its leader's clock is behind");
    }
}
