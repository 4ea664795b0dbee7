//! Tests of packed messages: round trips, cut and damaged input, and bounds.

use super::*;
use crate::convert::testing::{tagged_op, tagged_reply};
use proptest::prelude::*;

const CLIENT: ClientId = ClientId::new(Uuid::from_u128(7));

fn pack(ops: &[TaggedOp]) -> Bytes {
    let mut packer = OpPacker::new(CLIENT);
    ops.iter().for_each(|op| packer.push(op.tag, op.partition, op.id.as_ref(), &op.op));
    packer.finish()
}

fn of_client(mut op: TaggedOp) -> TaggedOp {
    op.id.iter_mut().for_each(|id| id.client = CLIENT);
    op
}

proptest! {
    #[test]
    fn operations_round_trip(ops in proptest::collection::vec(tagged_op().prop_map(of_client), 0..8)) {
        let read = unpack_ops(pack(&ops)).unwrap();
        prop_assert_eq!(read.iter().map(|read| read.bytes).sum::<usize>(), ops.iter().map(|op| op.op.bytes()).sum::<usize>());
        prop_assert_eq!(read.into_iter().map(|read| read.op).collect::<Result<Vec<_>, _>>(), Ok(ops));
    }

    #[test]
    fn answers_round_trip(replies in proptest::collection::vec(tagged_reply(), 0..8)) {
        let mut packer = ReplyPacker::default();
        replies.iter().for_each(|reply| packer.push(reply));
        prop_assert_eq!(unpack_replies(packer.finish()).collect::<Result<Vec<_>, _>>(), Ok(replies));
    }

    #[test]
    fn cut_message_is_an_error_or_ends_between_operations(op in tagged_op().prop_map(of_client), part in 0.0..1.0_f64) {
        let whole = pack(std::slice::from_ref(&op));
        let length = ((whole.len() - 1) as f64 * part) as usize;
        let cut = unpack_ops(whole.slice(..length));
        prop_assert!(cut.is_err() || length == 0 || length == CLIENT_BYTES, "{:?}", cut);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let _ = unpack_ops(bytes.clone());
        let read: Vec<_> = unpack_replies(bytes).collect();
        prop_assert!(read.iter().rev().skip(1).all(Result::is_ok), "it goes on after an error");
    }

    #[test]
    fn numbers_of_either_sign_round_trip(number in any::<i64>()) {
        prop_assert_eq!(unzigzag(zigzag(number)), number);
    }
}

fn get(tag: u64, table: u64, index: u32, key: &'static str) -> TaggedOp {
    let partition = PartitionId::new(TableId::new(table), index);
    TaggedOp { tag, partition, id: None, op: Op::Get { key: Bytes::from_static(key.as_bytes()) } }
}

#[test]
fn invalid_operation_does_not_affect_others() {
    let id = OpId { client: CLIENT, number: 3, done_below: 3, stamp: Millis::ZERO };
    let unnumbered = TaggedOp { id: Some(OpId { number: 0, done_below: 0, ..id }), ..get(5, 1, 0, "k") };
    let ops = [get(1, 1, 0, "k"), get(2, 1, 0, ""), get(3, 0, 0, "k"), get(4, 1, u32::MAX, "k"), unnumbered];
    let read = unpack_ops(pack(&ops)).unwrap();
    let fields: Vec<_> = read.iter().map(|read| read.op.as_ref().err().map(|error| error.field)).collect();
    let expected = [None, Some("Op.key"), Some("Op.table"), None, Some("OpId.number")];
    assert_eq!(fields, expected);
    assert_eq!(read.iter().map(|read| read.tag).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn named_operation_requires_a_client_and_valid_done_below() {
    let id = OpId { client: ClientId::NIL, number: 3, done_below: 1, stamp: Millis::ZERO };
    let mut packer = OpPacker::new(ClientId::NIL);
    packer.push(1, PartitionId::new(TableId::new(1), 0), Some(&id), &Op::Delete { key: "k".into() });
    let read = unpack_ops(packer.finish()).unwrap();
    assert_eq!(read[0].op.as_ref().unwrap_err().field, "OpId.client");
    // Kind, tag, table, index, number 3, done below it by 4, stamp, key "k".
    let early = [CLIENT.get().as_bytes(), &[DELETE | NAMED, 1, 1, 0, 3, 4, 0, 1, b'k'][..]].concat();
    assert_eq!(unpack_ops(early.into()).unwrap()[0].op.as_ref().unwrap_err().field, "OpId.done_below");
}

#[test]
fn packed_message_is_bounded_in_number_and_bytes() {
    let most = vec![get(1, 1, 0, "k"); BATCH_OPS_MAX];
    assert!(unpack_ops(pack(&most)).is_ok());
    assert!(unpack_ops(pack(&[most, vec![get(1, 1, 0, "k")]].concat())).is_err());
    let value = Bytes::from(vec![0; 1 << 20]);
    let put = TaggedOp { op: Op::Put { key: "k".into(), value }, ..get(1, 1, 0, "k") };
    assert!(unpack_ops(pack(&vec![put.clone(); 3])).is_ok());
    assert!(unpack_ops(pack(&vec![put; 4])).is_err());
}
