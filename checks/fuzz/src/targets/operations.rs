//! Key-value operations, their answers, and stored entries, each taken through a round trip.

use crate::protobuf;
use crate::target::{Target, Verdict};
use crate::targets::wire::{conversion, shape};
use archon_proto::convert::kv;
use archon_proto::convert::kv::packed;
use archon_proto::v1;
use archon_testkit::Random;
use archon_types::op::Entry;
use archon_types::{
    Answer, Change, Check, ClientId, ErrorDetail, ErrorKind, Expiry, KeyRange, ManyKeys, Millis, Op, OpId, PartitionId,
    Revision, ScanOrder, StoredValue, TableId, Transaction, Write,
};
use archon_types::{pack_entry, unpack_entries};
use bytes::{Bytes, BytesMut};
use prost::Message;
use uuid::Uuid;

fn batch_of_operations(input: &[u8]) -> Verdict {
    let batch = match v1::BatchRequest::decode(input) {
        Ok(batch) => batch,
        Err(error) => return Verdict::Refused(format!("protobuf: {error}")),
    };
    Verdict::of(kv::check_batch(&batch.ops, "BatchRequest.ops"), |()| format!("{} operations", batch.ops.len().min(9)))
}

/// Packed operations: accepted ones are packed and decoded again.
fn packed_operations(input: &[u8]) -> Verdict {
    let read = match packed::unpack_ops(Bytes::copy_from_slice(input)) {
        Ok(read) => read,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let ops: Result<Vec<kv::TaggedOp>, _> = read.into_iter().map(|read| read.op).collect();
    let ops = match ops {
        Ok(ops) => ops,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let client = ops.iter().find_map(|op| op.id).map_or(ClientId::NIL, |id| id.client);
    let mut packer = packed::OpPacker::new(client);
    ops.iter().for_each(|op| packer.push(op.tag, op.partition, op.id.as_ref(), &op.op));
    let again = packed::unpack_ops(packer.finish())
        .map(|read| read.into_iter().map(|read| read.op).collect::<Result<Vec<_>, _>>());
    assert_eq!(again, Ok(Ok(ops.clone())), "decoding does not restore the operations");
    Verdict::Accepted(shape(&ops))
}

/// Packed answers, likewise.
fn packed_answers(input: &[u8]) -> Verdict {
    let read: Result<Vec<kv::TaggedReply>, _> = packed::unpack_replies(Bytes::copy_from_slice(input)).collect();
    Verdict::of(read, |replies| {
        let mut packer = packed::ReplyPacker::default();
        replies.iter().for_each(|reply| packer.push(reply));
        let again: Result<Vec<_>, _> = packed::unpack_replies(packer.finish()).collect();
        assert_eq!(again.as_ref(), Ok(replies), "decoding does not restore the answers");
        shape(replies)
    })
}

/// Generates a message of several operations, some of them wrong in one field.
fn generate_operations(_: &str, random: &mut Random) -> Vec<u8> {
    let client = ClientId::new(Uuid::from_u128(random.index(3) as u128));
    let mut packer = packed::OpPacker::new(client);
    for _ in 0..random.index(6) {
        let bytes = |random: &mut Random| Bytes::from(vec![b'a' + random.index(26) as u8; random.index(40)]);
        let op = match random.index(9) {
            0 => Op::Get { key: bytes(random) },
            1 => Op::Put { key: bytes(random), value: bytes(random) },
            2 => Op::Delete { key: bytes(random) },
            3 => {
                Op::CompareAndSet { key: bytes(random), expected: Revision::new(random.number()), value: bytes(random) }
            }
            4 => Op::Increment { key: bytes(random), by: random.number() as i64 },
            5 => Op::PutExpiring {
                key: bytes(random),
                value: bytes(random),
                expected: (random.index(2) == 0).then(|| Revision::new(random.number())),
                expiry: match random.index(3) {
                    0 => Expiry::Keep,
                    1 => Expiry::After(random.number()),
                    _ => Expiry::At(Millis::new(random.number())),
                },
            },
            6 => match ManyKeys::new((0..1 + random.index(3)).map(|_| key(random)).collect()) {
                Ok(many) => Op::GetMany(Box::new(many)),
                Err(_) => continue,
            },
            7 => match generate_transaction(random) {
                Some(transaction) => Op::Transaction(Box::new(transaction)),
                None => continue,
            },
            _ => Op::Scan {
                keys: KeyRange { begin: bytes(random), end: (random.index(2) == 0).then(|| bytes(random)) },
                order: if random.index(2) == 0 { ScanOrder::Ascending } else { ScanOrder::Descending },
                limit: random.index(20_000) as u32,
            },
        };
        let (number, done_below) = (random.index(9) as u64, random.index(9) as u64);
        let id = OpId { client, number, done_below, stamp: Millis::new(random.number()) };
        let partition = PartitionId::new(TableId::new(random.index(4) as u64), random.index(20_000) as u32);
        packer.push(random.number(), partition, (random.index(2) == 0).then_some(&id), &op);
    }
    packer.finish().to_vec()
}

fn key(random: &mut Random) -> Bytes {
    Bytes::from(vec![b'a' + random.index(26) as u8; 1 + random.index(40)])
}

/// Generates a transaction, unless it would write a key twice.
fn generate_transaction(random: &mut Random) -> Option<Transaction> {
    let checks =
        (0..random.index(3)).map(|_| Check { key: key(random), expected: Revision::new(random.number()) }).collect();
    let writes = (0..1 + random.index(3))
        .map(|_| {
            let change = match random.index(3) {
                0 => Change::Delete,
                1 => Change::Put { value: key(random), expiry: None },
                _ => Change::Put { value: key(random), expiry: Some(Expiry::At(Millis::new(random.number() >> 1))) },
            };
            Write { key: key(random), change }
        })
        .collect();
    Transaction::new(checks, writes).ok()
}

fn expires(random: &mut Random) -> Option<Millis> {
    (random.index(2) == 0).then(|| Millis::new(random.number()))
}

/// Generates a message of several answers.
fn generate_answers(_: &str, random: &mut Random) -> Vec<u8> {
    let mut packer = packed::ReplyPacker::default();
    for _ in 0..random.index(6) {
        let bytes = Bytes::from(vec![b'a' + random.index(26) as u8; random.index(40)]);
        let revision = Revision::new(random.number());
        let outcome = match random.index(11) {
            0 => Ok(Answer::Value(None)),
            1 => Ok(Answer::Value(Some(StoredValue { expires: expires(random), ..StoredValue::new(bytes, revision) }))),
            2 => Ok(Answer::Written { revision }),
            3 => Ok(Answer::Deleted { existed: random.index(2) == 0 }),
            4 => Ok(Answer::ConditionFailed { revision }),
            5 => Ok(Answer::Counter { value: random.number() as i64, revision }),
            6 => {
                let entry = Entry { key: bytes.clone(), value: bytes, revision, expires: expires(random) };
                Ok(Answer::Page {
                    entries: vec![entry; random.index(3)],
                    more: random.index(2) == 0,
                    range: KeyRange { begin: Bytes::from_static(b"m"), end: None },
                })
            }
            7 => {
                let stored = StoredValue { expires: expires(random), ..StoredValue::new(bytes, revision) };
                Ok(Answer::Values(
                    (0..random.index(4)).map(|number| (number % 2 == 0).then(|| stored.clone())).collect(),
                ))
            }
            8 => Ok(Answer::Applied { revision, removed: random.index(9) as u32 }),
            9 => Ok(Answer::CheckFailed { check: random.index(9) as u32, revision }),
            _ => Err(ErrorDetail::new(ErrorKind::Overloaded, "later").with_retry_after_ms(random.number())),
        };
        packer.push(&kv::TaggedReply { tag: random.number(), log_time: Millis::new(random.number()), outcome });
    }
    packer.finish().to_vec()
}

/// Entries of a snapshot or a backup: accepted input survives a round trip.
fn packed_entries(bytes: &[u8]) -> Verdict {
    let packed = Bytes::copy_from_slice(bytes);
    let entries: Result<Vec<Entry>, _> = unpack_entries(&packed).collect();
    if let Ok(entries) = &entries {
        assert_eq!(pack(entries), packed, "other entries came out");
    }
    Verdict::of(entries, |entries| format!("{} entries", entries.len().min(3)))
}

fn pack(entries: &[Entry]) -> Bytes {
    let mut packed = BytesMut::new();
    entries.iter().for_each(|entry| pack_entry(&mut packed, &entry.key, &entry.stored()));
    packed.freeze()
}

fn packs_of_entries() -> Vec<Vec<u8>> {
    let entry = |key: &'static str, value: &'static str, revision, expires: Option<u64>| Entry {
        key: key.into(),
        value: value.into(),
        revision: Revision::new(revision),
        expires: expires.map(Millis::new),
    };
    let entries = [
        entry("city/1", "athens", 7, None),
        entry("city/2", "", 1, Some(1_700_000_000_000)),
        entry("n", "41", u64::MAX, None),
    ];
    vec![pack(&entries).to_vec(), pack(&entries[..1]).to_vec()]
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        conversion!(Op => kv::KeyedOp),
        conversion!(Reply => kv::TaggedReply),
        Target {
            generate: Some(protobuf::generate),
            ..Target::new("wire/BatchRequest", batch_of_operations, Vec::new)
        },
        Target {
            generate: Some(generate_operations),
            ..Target::new("wire/packed operations", packed_operations, Vec::new)
        },
        Target { generate: Some(generate_answers), ..Target::new("wire/packed answers", packed_answers, Vec::new) },
        Target::new("wire/packed-entries", packed_entries, packs_of_entries),
    ]
}
