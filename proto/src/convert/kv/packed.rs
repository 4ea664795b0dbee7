//! Operations and answers of the streams between clients and nodes, packed by hand: at half a million operations a
//! second protobuf's nested messages cost more than the operations themselves (ADR 0017).
//!
//! ```text
//! operations = client (16 bytes, zeros: none) · operation*
//! operation  = kind u8 (128 added: named) · tag · table · index · [number · number - done_below · stamp] · body
//! body       = get, delete: key · put: key, value · compare-and-set: key, expected, value
//!              increment: key, by (zigzag) · scan: range, descending u8, limit
//!              put with an expiry: key, 0 | 1, expected, expiry, value
//!              get of several keys: number of keys, key* · transaction: number of checks, (key, expected)*,
//!              number of writes, (key, 0: delete | 1, value: put | 2, expiry, value: put with an expiry)*
//! expiry     = 0: that of the value before · 1, milliseconds after the write · 2, log time
//! range      = begin · 0 | 1, end
//! answers    = answer*, a page begins: more u8 · range
//! answer     = kind u8 · tag · log time · body
//!              values of several keys: their number, (0: absent | 1, revision, value | 2, revision, log time, value)*
//!              entries of a page in which any value expires: each with the log time of that + 1, or 0
//! ```
//!
//! Numbers are LEB128, byte strings are preceded by their length, and share the memory of the message when read. Bytes
//! that cannot be divided into operations are an error of the whole message; an operation with fields out of range is
//! an error of that operation, which its tag identifies.

use super::fields::{FieldReader, put_bytes, put_number, unzigzag, zigzag};
use super::key_range::{check_range, order_of};
use super::{TaggedOp, TaggedReply, several};
use crate::convert::ConvertError;
use crate::v1;
use archon_types::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX, SCAN_LIMIT_MAX, check_expiry, check_key, check_value};
use archon_types::op::Entry;
use archon_types::{
    Answer, ClientId, KeyRange, Millis, Op, OpId, PartitionId, Revision, ScanOrder, StoredValue, TableId,
};
use bytes::Bytes;
use prost::Message;
use uuid::Uuid;

const CLIENT_BYTES: usize = 16;
const NAMED: u8 = 0x80;

const GET: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const COMPARE_AND_SET: u8 = 4;
const INCREMENT: u8 = 5;
const SCAN: u8 = 6;
const PUT_EXPIRING: u8 = 7;
const GET_MANY: u8 = 8;
const TRANSACTION: u8 = 9;

const ERROR: u8 = 1;
const VALUE: u8 = 2;
const NO_VALUE: u8 = 3;
const WRITTEN: u8 = 4;
const DELETED: u8 = 5;
const NOT_THERE: u8 = 6;
const CONDITION_FAILED: u8 = 7;
const COUNTER: u8 = 8;
const NOT_A_NUMBER: u8 = 9;
const PAGE: u8 = 10;
const EXPIRING_VALUE: u8 = 11;
const EXPIRING_PAGE: u8 = 12;
const VALUES: u8 = 13;
const APPLIED: u8 = 14;
const CHECK_FAILED: u8 = 15;

/// Gathers the operations of one message.
#[derive(Debug)]
pub struct OpPacker {
    out: Vec<u8>,
    client: ClientId,
}

impl OpPacker {
    /// Creates an empty message of operations of `client`; [`ClientId::NIL`] if it names none.
    pub fn new(client: ClientId) -> Self {
        let mut out = Vec::with_capacity(4_096);
        out.extend_from_slice(client.get().as_bytes());
        Self { out, client }
    }

    /// Adds an operation. If it is named, it has the message's client.
    pub fn push(&mut self, tag: u64, partition: PartitionId, id: Option<&OpId>, op: &Op) {
        let out = &mut self.out;
        let kind = match op {
            Op::Get { .. } => GET,
            Op::Put { .. } => PUT,
            Op::Delete { .. } => DELETE,
            Op::CompareAndSet { .. } => COMPARE_AND_SET,
            Op::PutExpiring { .. } => PUT_EXPIRING,
            Op::Increment { .. } => INCREMENT,
            Op::Scan { .. } => SCAN,
            Op::GetMany(_) => GET_MANY,
            Op::Transaction(_) => TRANSACTION,
        };
        out.push(kind | if id.is_some() { NAMED } else { 0 });
        put_number(out, tag);
        put_number(out, partition.table.get());
        put_number(out, u64::from(partition.index));
        if let Some(id) = id {
            debug_assert_eq!(id.client, self.client, "one message carries one client's operations");
            put_number(out, id.number);
            put_number(out, id.number.saturating_sub(id.done_below));
            put_number(out, id.stamp.get());
        }
        match op {
            Op::Get { key } | Op::Delete { key } => put_bytes(out, key),
            Op::Put { key, value } => {
                put_bytes(out, key);
                put_bytes(out, value);
            }
            Op::CompareAndSet { key, expected, value } => {
                put_bytes(out, key);
                put_number(out, expected.get());
                put_bytes(out, value);
            }
            Op::PutExpiring { key, value, expected, expiry } => {
                put_bytes(out, key);
                out.push(u8::from(expected.is_some()));
                expected.iter().for_each(|expected| put_number(out, expected.get()));
                several::put_expiry(out, *expiry);
                put_bytes(out, value);
            }
            Op::Increment { key, by } => {
                put_bytes(out, key);
                put_number(out, zigzag(*by));
            }
            Op::Scan { keys, order, limit } => {
                put_range(out, keys);
                out.push(u8::from(*order == ScanOrder::Descending));
                put_number(out, u64::from(*limit));
            }
            Op::GetMany(many) => several::put_many(out, many),
            Op::Transaction(transaction) => several::put_transaction(out, transaction),
        }
    }

    /// Returns the message.
    pub fn finish(self) -> Bytes {
        Bytes::from(self.out)
    }
}

/// An operation read from a message: itself, or its fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnpackedOperation {
    /// Its tag, for the answer.
    pub tag: u64,
    /// Bytes of its keys and values.
    pub bytes: usize,
    /// The operation, checked.
    pub op: Result<TaggedOp, ConvertError>,
}

/// Reads the operations of a message.
///
/// # Errors
/// [`ConvertError`] if the message cannot be divided into operations, or holds too many or too large ones.
pub fn unpack_ops(bytes: Bytes) -> Result<Vec<UnpackedOperation>, ConvertError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = FieldReader::new(bytes, "OpBatch.ops");
    let client = reader.raw(CLIENT_BYTES)?;
    let client = Uuid::from_slice(&client).map_err(|_| reader.error("the client is cut short".to_owned()))?;
    let mut ops = Vec::new();
    let mut bytes = 0;
    while !reader.is_empty() {
        if ops.len() == BATCH_OPS_MAX {
            return Err(reader.error(format!("more operations than {BATCH_OPS_MAX}, the limit")));
        }
        let op = read_op(&mut reader, ClientId::new(client))?;
        bytes += op.bytes;
        if bytes > BATCH_BYTES_MAX {
            let problem = format!("{bytes} bytes of keys and values; the limit is {BATCH_BYTES_MAX}");
            return Err(reader.error(problem));
        }
        ops.push(op);
    }
    Ok(ops)
}

fn read_op(reader: &mut FieldReader, client: ClientId) -> Result<UnpackedOperation, ConvertError> {
    let kind = reader.byte()?;
    let tag = reader.number()?;
    let (table, index) = (reader.number()?, reader.number()?);
    let name = match kind & NAMED {
        0 => None,
        _ => Some((reader.number()?, reader.number()?, reader.number()?)),
    };
    let op = match kind & !NAMED {
        GET_MANY | TRANSACTION => {
            let read = match kind & !NAMED {
                GET_MANY => several::read_many(reader)?.map(|many| Op::GetMany(Box::new(many))),
                _ => several::read_transaction(reader)?.map(|write| Op::Transaction(Box::new(write))),
            };
            let bytes = read.as_ref().map_or(0, Op::bytes);
            let op = read.and_then(|op| {
                let (partition, id) = check(client, (table, index), name, &op)?;
                Ok(TaggedOp { tag, partition, id, op })
            });
            return Ok(UnpackedOperation { tag, bytes, op });
        }
        GET => Op::Get { key: reader.take()? },
        PUT => Op::Put { key: reader.take()?, value: reader.take()? },
        DELETE => Op::Delete { key: reader.take()? },
        COMPARE_AND_SET => {
            Op::CompareAndSet { key: reader.take()?, expected: Revision::new(reader.number()?), value: reader.take()? }
        }
        PUT_EXPIRING => {
            let key = reader.take()?;
            let is_conditional = read_flag(reader, "whether a put has a condition")?;
            let expected = if is_conditional { Some(Revision::new(reader.number()?)) } else { None };
            let expiry = several::read_expiry(reader)?;
            Op::PutExpiring { key, expected, expiry, value: reader.take()? }
        }
        INCREMENT => Op::Increment { key: reader.take()?, by: unzigzag(reader.number()?) },
        SCAN => {
            let (keys, order) = (read_range(reader)?, order_of(read_flag(reader, "the order of a scan")?));
            Op::Scan { keys, order, limit: u32::try_from(reader.number()?).unwrap_or(u32::MAX) }
        }
        other => return Err(reader.error(format!("an operation of kind {other}, which this version does not know"))),
    };
    let bytes = op.bytes();
    let checked = check(client, (table, index), name, &op);
    Ok(UnpackedOperation { tag, bytes, op: checked.map(|(partition, id)| TaggedOp { tag, partition, id, op }) })
}

fn check(
    client: ClientId,
    (table, index): (u64, u64),
    name: Option<(u64, u64, u64)>,
    op: &Op,
) -> Result<(PartitionId, Option<OpId>), ConvertError> {
    let table = TableId::new(crate::convert::ids::non_zero(table, "Op.table")?);
    let index =
        u32::try_from(index).map_err(|_| ConvertError::new("Op.index", format!("{index} is above {}", u32::MAX)))?;
    let id = match name {
        None => None,
        Some((number, behind, stamp)) => {
            let number = crate::convert::ids::non_zero(number, "OpId.number")?;
            if client.is_nil() {
                return Err(ConvertError::new("OpId.client", "missing, but the operation has a number"));
            }
            let done_below = number.checked_sub(behind).ok_or_else(|| {
                ConvertError::new("OpId.done_below", format!("{behind} before number {number}, which is below 0"))
            })?;
            Some(OpId { client, number, done_below, stamp: Millis::new(stamp) })
        }
    };
    let key = |key: &Bytes| crate::convert::checked(check_key(key), "Op.key");
    let value = |value: &Bytes| crate::convert::checked(check_value(value), "Op.value");
    match op {
        Op::Get { key: of } | Op::Delete { key: of } | Op::Increment { key: of, .. } => key(of)?,
        Op::Put { key: of, value: to } | Op::CompareAndSet { key: of, value: to, .. } => {
            key(of)?;
            value(to)?;
        }
        Op::PutExpiring { key: of, value: to, expiry, .. } => {
            key(of)?;
            value(to)?;
            crate::convert::checked(check_expiry(*expiry), "Op.expiry")?;
        }
        Op::Scan { keys, limit, .. } => {
            check_range(keys, "Op.keys")?;
            crate::convert::in_range::<u32>(*limit, 1, SCAN_LIMIT_MAX, "Op.limit")?;
        }
        // They cannot be made without.
        Op::GetMany(_) | Op::Transaction(_) => {}
    }
    Ok((PartitionId::new(table, index), id))
}

fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.begin);
    out.push(u8::from(range.end.is_some()));
    range.end.iter().for_each(|end| put_bytes(out, end));
}

fn read_range(reader: &mut FieldReader) -> Result<KeyRange, ConvertError> {
    let begin = reader.take()?;
    let end = if read_flag(reader, "whether a range ends")? { Some(reader.take()?) } else { None };
    Ok(KeyRange { begin, end })
}

fn read_flag(reader: &mut FieldReader, what: &str) -> Result<bool, ConvertError> {
    match reader.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.error(format!("{other} where a byte says {what}"))),
    }
}

/// Gathers the answers of one message.
#[derive(Debug, Default)]
pub struct ReplyPacker {
    out: Vec<u8>,
}

impl ReplyPacker {
    /// Adds an answer.
    pub fn push(&mut self, reply: &TaggedReply) {
        let out = &mut self.out;
        let kind = match &reply.outcome {
            Err(_) => ERROR,
            Ok(Answer::Value(Some(StoredValue { expires: None, .. }))) => VALUE,
            Ok(Answer::Value(Some(_))) => EXPIRING_VALUE,
            Ok(Answer::Value(None)) => NO_VALUE,
            Ok(Answer::Written { .. }) => WRITTEN,
            Ok(Answer::Deleted { existed: true }) => DELETED,
            Ok(Answer::Deleted { existed: false }) => NOT_THERE,
            Ok(Answer::ConditionFailed { .. }) => CONDITION_FAILED,
            Ok(Answer::Counter { .. }) => COUNTER,
            Ok(Answer::NotANumber) => NOT_A_NUMBER,
            Ok(Answer::Page { entries, .. }) if entries.iter().any(|entry| entry.expires.is_some()) => EXPIRING_PAGE,
            Ok(Answer::Page { .. }) => PAGE,
            Ok(Answer::Values(_)) => VALUES,
            Ok(Answer::Applied { .. }) => APPLIED,
            Ok(Answer::CheckFailed { .. }) => CHECK_FAILED,
        };
        out.push(kind);
        put_number(out, reply.tag);
        put_number(out, reply.log_time.get());
        match &reply.outcome {
            Err(detail) => put_bytes(out, &v1::ErrorDetail::from(detail.clone()).encode_to_vec()),
            Ok(Answer::Value(Some(StoredValue { value, revision, expires }))) => {
                put_number(out, revision.get());
                expires.iter().for_each(|expires| put_number(out, expires.get()));
                put_bytes(out, value);
            }
            Ok(Answer::Written { revision } | Answer::ConditionFailed { revision }) => put_number(out, revision.get()),
            Ok(Answer::Counter { value, revision }) => {
                put_number(out, zigzag(*value));
                put_number(out, revision.get());
            }
            Ok(Answer::Page { entries, more, range }) => {
                out.push(u8::from(*more));
                put_range(out, range);
                put_number(out, entries.len() as u64);
                for Entry { key, value, revision, expires } in entries {
                    put_bytes(out, key);
                    put_bytes(out, value);
                    put_number(out, revision.get());
                    if kind == EXPIRING_PAGE {
                        put_number(out, expires.map_or(0, |expires| expires.get().saturating_add(1)));
                    }
                }
            }
            Ok(Answer::Values(values)) => several::put_values(out, values),
            Ok(Answer::Applied { revision, removed: number } | Answer::CheckFailed { check: number, revision }) => {
                put_number(out, u64::from(*number));
                put_number(out, revision.get());
            }
            Ok(Answer::Value(None) | Answer::Deleted { .. } | Answer::NotANumber) => {}
        }
    }

    /// Returns the message.
    pub fn finish(self) -> Bytes {
        Bytes::from(self.out)
    }
}

/// Iterator of the answers in a message; it ends after an error.
#[derive(Debug)]
pub struct UnpackedReplies(FieldReader);

/// Reads the answers of a message.
pub fn unpack_replies(bytes: Bytes) -> UnpackedReplies {
    UnpackedReplies(FieldReader::new(bytes, "ReplyBatch.replies"))
}

impl Iterator for UnpackedReplies {
    type Item = Result<TaggedReply, ConvertError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = read_reply(&mut self.0);
        if read.is_err() {
            self.0.end();
        }
        Some(read)
    }
}

fn read_reply(reader: &mut FieldReader) -> Result<TaggedReply, ConvertError> {
    let kind = reader.byte()?;
    let (tag, log_time) = (reader.number()?, Millis::new(reader.number()?));
    let answer = match kind {
        ERROR => {
            let detail = v1::ErrorDetail::decode(reader.take()?);
            let detail = detail.map_err(|error| reader.error(format!("an error that cannot be read: {error}")))?;
            return Ok(TaggedReply { tag, log_time, outcome: Err(detail.into()) });
        }
        VALUE => {
            let revision = Revision::new(reader.number()?);
            Answer::Value(Some(StoredValue::new(reader.take()?, revision)))
        }
        EXPIRING_VALUE => {
            let (revision, expires) = (Revision::new(reader.number()?), Some(Millis::new(reader.number()?)));
            Answer::Value(Some(StoredValue { value: reader.take()?, revision, expires }))
        }
        NO_VALUE => Answer::Value(None),
        WRITTEN => Answer::Written { revision: Revision::new(reader.number()?) },
        DELETED => Answer::Deleted { existed: true },
        NOT_THERE => Answer::Deleted { existed: false },
        CONDITION_FAILED => Answer::ConditionFailed { revision: Revision::new(reader.number()?) },
        COUNTER => {
            let value = unzigzag(reader.number()?);
            Answer::Counter { value, revision: Revision::new(reader.number()?) }
        }
        NOT_A_NUMBER => Answer::NotANumber,
        PAGE | EXPIRING_PAGE => {
            let (more, range) = (read_flag(reader, "whether there is more")?, read_range(reader)?);
            check_range(&range, "AnswerPage.range")?;
            let count = reader.number()?;
            let mut entries = Vec::new();
            for _ in 0..count {
                let (key, value) = (reader.take()?, reader.take()?);
                crate::convert::checked(check_key(&key), "Entry.key")?;
                let revision = Revision::new(reader.number()?);
                let expires =
                    if kind == EXPIRING_PAGE { reader.number()?.checked_sub(1).map(Millis::new) } else { None };
                entries.push(Entry { key, value, revision, expires });
            }
            Answer::Page { entries, more, range }
        }
        VALUES => Answer::Values(several::read_values(reader)?),
        APPLIED => {
            let removed = several::read_u32(reader)?;
            Answer::Applied { revision: Revision::new(reader.number()?), removed }
        }
        CHECK_FAILED => {
            let check = several::read_u32(reader)?;
            Answer::CheckFailed { check, revision: Revision::new(reader.number()?) }
        }
        other => return Err(reader.error(format!("an answer of kind {other}, which this version does not know"))),
    };
    Ok(TaggedReply { tag, log_time, outcome: Ok(answer) })
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
