//! Operations and answers of the key-value plane.

pub mod fields;
pub mod key_range;
pub mod packed;
mod several;

use super::ids::{client_id, non_zero, uuid_bytes};
use super::kv::key_range::{from_range_field, order_of, range_field};
use super::{ConvertError, checked, in_range, required};
use crate::v1;
use archon_types::limits::{
    BATCH_BYTES_MAX, BATCH_OPS_MAX, BOUND_BYTES_MAX, SCAN_LIMIT_MAX, check_expiry, check_key, check_value,
};
use archon_types::op::Entry;
use archon_types::{
    Answer, ClientId, ErrorDetail, Expiry, Millis, Op, OpId, PartitionId, Revision, ScanOrder, StoredValue,
};
use bytes::Bytes;

/// An operation in a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaggedOp {
    /// Echoed in the reply; unique among the operations in flight in the stream.
    pub tag: u64,
    /// The partition the client believes the key belongs to.
    pub partition: PartitionId,
    /// Its permanent name, if the client may retry it.
    pub id: Option<OpId>,
    /// The operation, its key, value and limit checked.
    pub op: Op,
}

/// An answer in a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaggedReply {
    /// The operation it answers.
    pub tag: u64,
    /// The partition's log time, for the client's next stamp; zero if the replier has none.
    pub log_time: Millis,
    /// Its outcome.
    pub outcome: Result<Answer, ErrorDetail>,
}

/// The name of an operation in a plain call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpName {
    /// The client instance.
    pub client: ClientId,
    /// The client's number for the operation, from 1.
    pub number: u64,
    /// All operations below this number are finished.
    pub done_below: u64,
    /// The partition's log time before the first attempt; `None`: this is the first attempt, and the node finds the log time.
    pub stamp: Option<Millis>,
}

impl OpName {
    /// Returns the name with this stamp.
    pub const fn stamped(self, stamp: Millis) -> OpId {
        let Self { client, number, done_below, .. } = self;
        OpId { client, number, done_below, stamp }
    }
}

impl From<OpId> for OpName {
    fn from(id: OpId) -> Self {
        let OpId { client, number, done_below, stamp } = id;
        Self { client, number, done_below, stamp: Some(stamp) }
    }
}

impl From<OpName> for v1::OpId {
    fn from(name: OpName) -> Self {
        Self {
            client: uuid_bytes(name.client.get()),
            number: name.number,
            done_below: name.done_below,
            stamp_ms: name.stamp.map(Millis::get),
        }
    }
}

impl TryFrom<v1::OpId> for OpName {
    type Error = ConvertError;

    fn try_from(wire: v1::OpId) -> Result<Self, ConvertError> {
        let number = non_zero(wire.number, "OpId.number")?;
        if wire.done_below > number {
            let problem = format!("{} is above the operation's own number {number}", wire.done_below);
            return Err(ConvertError::new("OpId.done_below", problem));
        }
        Ok(Self {
            client: client_id(&wire.client, "OpId.client")?,
            number,
            done_below: wire.done_below,
            stamp: wire.stamp_ms.map(Millis::new),
        })
    }
}

impl From<Op> for v1::op::Op {
    fn from(op: Op) -> Self {
        match op {
            Op::Get { key } => Self::Get(v1::OpGet { key }),
            Op::Put { key, value } => Self::Put(v1::OpPut { key, value }),
            Op::Delete { key } => Self::Delete(v1::OpDelete { key }),
            Op::CompareAndSet { key, expected, value } => {
                Self::CompareAndSet(v1::OpCompareAndSet { key, expected: expected.get(), value })
            }
            Op::PutExpiring { key, value, expected, expiry } => Self::PutExpiring(v1::OpPutExpiring {
                key,
                value,
                expected: expected.map(Revision::get),
                expiry: Some(expiry.into()),
            }),
            Op::Increment { key, by } => Self::Increment(v1::OpIncrement { key, by }),
            Op::Scan { keys, order, limit } => {
                Self::Scan(v1::OpScan { keys: range_field(keys), descending: order == ScanOrder::Descending, limit })
            }
            Op::GetMany(many) => Self::GetMany((*many).into()),
            Op::Transaction(transaction) => Self::Transaction((*transaction).into()),
        }
    }
}

impl TryFrom<v1::op::Op> for Op {
    type Error = ConvertError;

    fn try_from(wire: v1::op::Op) -> Result<Self, ConvertError> {
        let key = |key: Bytes, field| checked(check_key(&key), field).map(|()| key);
        let value = |value: Bytes, field| checked(check_value(&value), field).map(|()| value);
        Ok(match wire {
            v1::op::Op::Get(op) => Self::Get { key: key(op.key, "OpGet.key")? },
            v1::op::Op::Put(op) => Self::Put { key: key(op.key, "OpPut.key")?, value: value(op.value, "OpPut.value")? },
            v1::op::Op::Delete(op) => Self::Delete { key: key(op.key, "OpDelete.key")? },
            v1::op::Op::CompareAndSet(op) => Self::CompareAndSet {
                key: key(op.key, "OpCompareAndSet.key")?,
                expected: Revision::new(op.expected),
                value: value(op.value, "OpCompareAndSet.value")?,
            },
            v1::op::Op::PutExpiring(op) => {
                let expiry = required(op.expiry, "OpPutExpiring.expiry")?.try_into()?;
                Self::PutExpiring {
                    key: key(op.key, "OpPutExpiring.key")?,
                    value: value(op.value, "OpPutExpiring.value")?,
                    expected: op.expected.map(Revision::new),
                    expiry,
                }
            }
            v1::op::Op::Increment(op) => Self::Increment { key: key(op.key, "OpIncrement.key")?, by: op.by },
            v1::op::Op::Scan(op) => Self::Scan {
                limit: in_range(op.limit, 1, SCAN_LIMIT_MAX, "OpScan.limit")?,
                keys: from_range_field(op.keys)?,
                order: order_of(op.descending),
            },
            v1::op::Op::GetMany(op) => Self::GetMany(Box::new(op.try_into()?)),
            v1::op::Op::Transaction(op) => Self::Transaction(Box::new(op.try_into()?)),
        })
    }
}

impl From<Expiry> for v1::Expiry {
    fn from(expiry: Expiry) -> Self {
        let at = match expiry {
            Expiry::Keep => v1::expiry::At::Keep(true),
            Expiry::After(millis) => v1::expiry::At::TtlMs(millis),
            Expiry::At(time) => v1::expiry::At::TimeMs(time.get()),
        };
        Self { at: Some(at) }
    }
}

impl TryFrom<v1::Expiry> for Expiry {
    type Error = ConvertError;

    fn try_from(wire: v1::Expiry) -> Result<Self, ConvertError> {
        let expiry = match required(wire.at, "Expiry.at")? {
            v1::expiry::At::Keep(true) => Self::Keep,
            v1::expiry::At::Keep(false) => {
                return Err(ConvertError::new("Expiry.keep", "is false; leave the expiry out for a value without one"));
            }
            v1::expiry::At::TtlMs(millis) => Self::After(millis),
            v1::expiry::At::TimeMs(time) => Self::At(Millis::new(time)),
        };
        checked(check_expiry(expiry), "Expiry.at").map(|()| expiry)
    }
}

/// Hop count of operations that another node forwarded.
pub const FORWARDED: u32 = 1;

/// Returns true if another node has forwarded the operations of a message (`OpBatch.hops`).
///
/// # Errors
/// [`ConvertError`] if they were forwarded more than once, which no node does.
pub fn passed_on(hops: u32) -> Result<bool, ConvertError> {
    in_range(hops, 0, FORWARDED, "OpBatch.hops").map(|hops: u32| hops == FORWARDED)
}

/// Checks a bound of a range of keys: it may be empty and may end within a character.
pub(super) fn bounded_part(part: &Bytes, field: &'static str) -> Result<(), ConvertError> {
    if part.len() > BOUND_BYTES_MAX {
        return Err(ConvertError::new(field, format!("has {} bytes; the limit is {BOUND_BYTES_MAX}", part.len())));
    }
    Ok(())
}

/// An operation of a plain `Batch` call, with its partition determined by its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyedOp {
    /// Echoed in the reply.
    pub tag: u64,
    /// The partition, if the client named it anyway.
    pub partition: Option<PartitionId>,
    /// Its permanent name, if the client may retry it.
    pub id: Option<OpName>,
    /// The operation, checked.
    pub op: Op,
}

impl From<KeyedOp> for v1::Op {
    fn from(keyed: KeyedOp) -> Self {
        Self {
            tag: keyed.tag,
            partition: keyed.partition.map(Into::into),
            id: keyed.id.map(Into::into),
            op: Some(keyed.op.into()),
        }
    }
}

impl TryFrom<v1::Op> for KeyedOp {
    type Error = ConvertError;

    fn try_from(wire: v1::Op) -> Result<Self, ConvertError> {
        Ok(Self {
            tag: wire.tag,
            partition: wire.partition.map(TryInto::try_into).transpose()?,
            id: wire.id.map(TryInto::try_into).transpose()?,
            op: required(wire.op, "Op.op")?.try_into()?,
        })
    }
}

/// Checks the size of a plain batch before its operations are read. `field` names its origin.
///
/// # Errors
/// [`ConvertError`] naming the number or bytes found and the limit.
pub fn check_batch(ops: &[v1::Op], field: &'static str) -> Result<(), ConvertError> {
    if ops.len() > BATCH_OPS_MAX {
        let problem = format!("{} operations; the limit is {BATCH_OPS_MAX}", ops.len());
        return Err(ConvertError::new(field, problem));
    }
    let bytes: usize = ops.iter().map(op_bytes).sum();
    if bytes > BATCH_BYTES_MAX {
        let problem = format!("{bytes} bytes of keys and values; the limit is {BATCH_BYTES_MAX}");
        return Err(ConvertError::new(field, problem));
    }
    Ok(())
}

fn op_bytes(op: &v1::Op) -> usize {
    match &op.op {
        Some(v1::op::Op::Get(op)) => op.key.len(),
        Some(v1::op::Op::Put(op)) => op.key.len() + op.value.len(),
        Some(v1::op::Op::Delete(op)) => op.key.len(),
        Some(v1::op::Op::CompareAndSet(op)) => op.key.len() + op.value.len(),
        Some(v1::op::Op::PutExpiring(op)) => op.key.len() + op.value.len(),
        Some(v1::op::Op::Increment(op)) => op.key.len(),
        Some(v1::op::Op::Scan(op)) => {
            op.keys.as_ref().map_or(0, |keys| keys.begin.len() + keys.end.as_ref().map_or(0, Bytes::len))
        }
        Some(v1::op::Op::GetMany(op)) => op.keys.iter().map(Bytes::len).sum(),
        Some(v1::op::Op::Transaction(op)) => several::transaction_bytes(op),
        None => 0,
    }
}

impl From<Option<StoredValue>> for v1::AnswerValue {
    fn from(found: Option<StoredValue>) -> Self {
        match found {
            Some(StoredValue { value, revision, expires }) => {
                Self { found: true, value, revision: revision.get(), expires_ms: expires.map(Millis::get) }
            }
            None => Self::default(),
        }
    }
}

impl From<v1::AnswerValue> for Option<StoredValue> {
    fn from(wire: v1::AnswerValue) -> Self {
        let expires = wire.expires_ms.map(Millis::new);
        wire.found.then(|| StoredValue { value: wire.value, revision: Revision::new(wire.revision), expires })
    }
}

impl From<Answer> for v1::reply::Answer {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Value(found) => Self::Value(found.into()),
            Answer::Written { revision } => Self::Written(v1::AnswerWritten { revision: revision.get() }),
            Answer::Deleted { existed } => Self::Deleted(v1::AnswerDeleted { existed }),
            Answer::ConditionFailed { revision } => {
                Self::ConditionFailed(v1::AnswerConditionFailed { revision: revision.get() })
            }
            Answer::Counter { value, revision } => Self::Counter(v1::AnswerCounter { value, revision: revision.get() }),
            Answer::NotANumber => Self::NotANumber(v1::AnswerNotANumber {}),
            Answer::Page { entries, more, range } => Self::Page(v1::AnswerPage {
                entries: entries.into_iter().map(Into::into).collect(),
                more,
                range: range_field(range),
            }),
            Answer::Values(values) => {
                Self::Values(v1::AnswerValues { values: values.into_iter().map(Into::into).collect() })
            }
            Answer::Applied { revision, removed } => {
                Self::Applied(v1::AnswerApplied { revision: revision.get(), removed })
            }
            Answer::CheckFailed { check, revision } => {
                Self::CheckFailed(v1::AnswerCheckFailed { check, revision: revision.get() })
            }
        }
    }
}

impl From<Entry> for v1::Entry {
    fn from(entry: Entry) -> Self {
        let (revision, expires_ms) = (entry.revision.get(), entry.expires.map(Millis::get));
        Self { key: entry.key, value: entry.value, revision, expires_ms }
    }
}

impl TryFrom<v1::Entry> for Entry {
    type Error = ConvertError;

    fn try_from(wire: v1::Entry) -> Result<Self, ConvertError> {
        checked(check_key(&wire.key), "Entry.key")?;
        let (revision, expires) = (Revision::new(wire.revision), wire.expires_ms.map(Millis::new));
        Ok(Self { key: wire.key, value: wire.value, revision, expires })
    }
}

impl From<TaggedReply> for v1::Reply {
    fn from(reply: TaggedReply) -> Self {
        let answer = match reply.outcome {
            Ok(answer) => answer.into(),
            Err(detail) => v1::reply::Answer::Error(detail.into()),
        };
        Self { tag: reply.tag, log_time_ms: reply.log_time.get(), answer: Some(answer) }
    }
}

impl TryFrom<v1::Reply> for TaggedReply {
    type Error = ConvertError;

    fn try_from(wire: v1::Reply) -> Result<Self, ConvertError> {
        let outcome = match required(wire.answer, "Reply.answer")? {
            v1::reply::Answer::Error(detail) => Err(detail.into()),
            v1::reply::Answer::Value(found) => Ok(Answer::Value(found.into())),
            v1::reply::Answer::Written(written) => Ok(Answer::Written { revision: Revision::new(written.revision) }),
            v1::reply::Answer::Deleted(deleted) => Ok(Answer::Deleted { existed: deleted.existed }),
            v1::reply::Answer::ConditionFailed(failed) => {
                Ok(Answer::ConditionFailed { revision: Revision::new(failed.revision) })
            }
            v1::reply::Answer::Counter(counter) => {
                Ok(Answer::Counter { value: counter.value, revision: Revision::new(counter.revision) })
            }
            v1::reply::Answer::NotANumber(_) => Ok(Answer::NotANumber),
            v1::reply::Answer::Page(page) => Ok(Answer::Page {
                entries: page.entries.into_iter().map(Entry::try_from).collect::<Result<_, _>>()?,
                more: page.more,
                range: from_range_field(page.range)?,
            }),
            v1::reply::Answer::Values(answer) => {
                Ok(Answer::Values(answer.values.into_iter().map(Into::into).collect()))
            }
            v1::reply::Answer::Applied(applied) => {
                Ok(Answer::Applied { revision: Revision::new(applied.revision), removed: applied.removed })
            }
            v1::reply::Answer::CheckFailed(failed) => {
                Ok(Answer::CheckFailed { check: failed.check, revision: Revision::new(failed.revision) })
            }
        };
        Ok(Self { tag: wire.tag, log_time: Millis::new(wire.log_time_ms), outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{tagged_op, tagged_reply};
    use proptest::prelude::*;
    use prost::Message;

    proptest! {
        #[test]
        fn operations_round_trip_through_bytes(op in tagged_op()) {
            let op = KeyedOp { tag: op.tag, partition: Some(op.partition), id: op.id.map(Into::into), op: op.op };
            let bytes = v1::Op::from(op.clone()).encode_to_vec();
            prop_assert_eq!(KeyedOp::try_from(v1::Op::decode(bytes.as_slice()).unwrap()), Ok(op));
        }

        #[test]
        fn replies_round_trip_through_bytes(reply in tagged_reply()) {
            let bytes = v1::Reply::from(reply.clone()).encode_to_vec();
            prop_assert_eq!(TaggedReply::try_from(v1::Reply::decode(bytes.as_slice()).unwrap()), Ok(reply));
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::BatchRequest::decode(bytes.as_slice()) {
                let _ = check_batch(&wire.ops, "BatchRequest.ops");
                for op in wire.ops {
                    let _ = KeyedOp::try_from(op);
                }
            }
            if let Ok(wire) = v1::BatchResponse::decode(bytes.as_slice()) {
                for reply in wire.replies {
                    let _ = TaggedReply::try_from(reply);
                }
            }
        }
    }

    fn refused(op: v1::op::Op) -> &'static str {
        Op::try_from(op).unwrap_err().field
    }

    #[test]
    fn invalid_operation_names_the_field() {
        let long = Bytes::from(vec![b'k'; archon_types::limits::KEY_BYTES_MAX + 1]);
        let huge = Bytes::from(vec![0; archon_types::limits::VALUE_BYTES_MAX + 1]);
        let key = Bytes::from_static(b"k");
        assert_eq!(refused(v1::op::Op::Get(v1::OpGet { key: Bytes::new() })), "OpGet.key");
        assert_eq!(refused(v1::op::Op::Delete(v1::OpDelete { key: long.clone() })), "OpDelete.key");
        assert_eq!(refused(v1::op::Op::Put(v1::OpPut { key, value: huge })), "OpPut.value");
        let scan = |limit, begin| {
            let keys = Some(v1::KeyRange { begin, end: None });
            v1::op::Op::Scan(v1::OpScan { keys, descending: false, limit })
        };
        assert_eq!(refused(scan(0, Bytes::new())), "OpScan.limit");
        assert_eq!(refused(scan(SCAN_LIMIT_MAX + 1, Bytes::new())), "OpScan.limit");
        assert!(Op::try_from(scan(1, long.clone())).is_ok(), "what follows the longest key");
        assert_eq!(refused(scan(1, [&long[..], b"k"].concat().into())), "KeyRange");
        assert_eq!(KeyedOp::try_from(v1::Op::default()).unwrap_err().field, "Op.op");
        assert_eq!(TaggedReply::try_from(v1::Reply::default()).unwrap_err().field, "Reply.answer");
    }

    #[test]
    fn plain_batch_operation_may_omit_its_partition() {
        let op = v1::Op { tag: 7, op: Some(v1::op::Op::Get(v1::OpGet { key: "k".into() })), ..Default::default() };
        let keyed = KeyedOp::try_from(op.clone()).unwrap();
        assert_eq!((keyed.tag, keyed.partition, keyed.op), (7, None, Op::Get { key: "k".into() }));
        let named = v1::Op { partition: Some(v1::PartitionId { table: 0, index: 0 }), ..op };
        assert!(KeyedOp::try_from(named).is_err(), "a partition that is named must be one");
    }

    #[test]
    fn done_below_cannot_exceed_the_operation() {
        let client = Bytes::from_static(&[7; 16]);
        let id = v1::OpId { client, number: 3, done_below: 4, stamp_ms: None };
        assert_eq!(OpName::try_from(id.clone()).unwrap_err().field, "OpId.done_below");
        let first = OpName::try_from(v1::OpId { done_below: 3, ..id.clone() }).unwrap();
        assert_eq!(first.stamp, None, "absent is not zero");
        assert_eq!(v1::OpId::from(first), v1::OpId { done_below: 3, ..id });
    }

    #[test]
    fn plain_batch_is_bounded_in_number_and_bytes() {
        let get = v1::Op { op: Some(v1::op::Op::Get(v1::OpGet { key: "k".into() })), ..Default::default() };
        let check = |ops: Vec<v1::Op>| check_batch(&ops, "BatchRequest.ops");
        assert!(check(vec![get.clone(); BATCH_OPS_MAX]).is_ok());
        assert_eq!(check(vec![get; BATCH_OPS_MAX + 1]).unwrap_err().field, "BatchRequest.ops");
        let value = Bytes::from(vec![0; 1 << 20]);
        let put = v1::Op { op: Some(v1::op::Op::Put(v1::OpPut { key: "k".into(), value })), ..Default::default() };
        assert!(check(vec![put.clone(); 3]).is_ok());
        assert!(check(vec![put; 4]).is_err());
    }
}
