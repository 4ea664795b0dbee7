//! Generators for the property tests of this module.

use super::kv::{TaggedOp, TaggedReply};
use crate::v1;
use archon_types::into_plain;
use archon_types::limits::{EXPIRY_MS_MAX, WEIGHTS};
use archon_types::op::Entry;
use archon_types::{
    Answer, Change, Check, ClientId, Epoch, ErrorDetail, ErrorKind, Expiry, Incarnation, Millis, Node, NodeGoal,
    NodeId, NodeStatus, Op, OpId, Partition, PartitionId, PartitionStatus, Placement, PlacementId, RemovedNodes,
    ReplicaState, Revision, StoredValue, Table, TableContent, TableDelta, TableId, Version,
};
use archon_types::{
    KeyRange, Keys, ManyKeys, Merge, MergeSide, Position, RangeLimits, RightCopy, RightStage, ScanOrder, Seq, Split,
    Transaction, Write,
};
use archon_types::{SPLIT_BYTES_MIN, SPLIT_RATE_MIN};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use uuid::Uuid;

fn key() -> impl Strategy<Value = Bytes> {
    "[a-zä{}]{1,20}".prop_map(Bytes::from)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..64).prop_map(Bytes::from)
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    (bytes(), option::of(bytes())).prop_map(|(begin, end)| KeyRange { begin, end })
}

fn revision() -> impl Strategy<Value = Revision> {
    any::<u64>().prop_map(Revision::new)
}

fn millis() -> impl Strategy<Value = Millis> {
    prop_oneof![Just(0), any::<u64>(), Just(u64::MAX - 1)].prop_map(Millis::new)
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Keep),
        (1..=EXPIRY_MS_MAX).prop_map(Expiry::After),
        (0..=EXPIRY_MS_MAX).prop_map(|at| Expiry::At(Millis::new(at)))
    ]
}

fn transaction() -> impl Strategy<Value = Transaction> {
    let check = (key(), revision()).prop_map(|(key, expected)| Check { key, expected });
    let put = (bytes(), option::of(expiry())).prop_map(|(value, expiry)| Change::Put { value, expiry });
    let writes = proptest::collection::btree_map(key(), prop_oneof![put, Just(Change::Delete)], 1..4);
    (vec(check, 0..4), writes).prop_map(|(checks, writes)| {
        let writes = writes.into_iter().map(|(key, change)| Write { key, change }).collect();
        Transaction::new(checks, writes).expect("within bounds")
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        key().prop_map(|key| Op::Get { key }),
        (key(), bytes()).prop_map(|(key, value)| Op::Put { key, value }),
        key().prop_map(|key| Op::Delete { key }),
        (key(), revision(), bytes()).prop_map(|(key, expected, value)| Op::CompareAndSet { key, expected, value }),
        (key(), bytes(), option::of(revision()), expiry()).prop_map(|(key, value, expected, expiry)| Op::PutExpiring {
            key,
            value,
            expected,
            expiry
        }),
        (key(), any::<i64>()).prop_map(|(key, by)| Op::Increment { key, by }),
        vec(key(), 1..5).prop_map(|keys| Op::GetMany(Box::new(ManyKeys::new(keys).expect("within bounds")))),
        transaction().prop_map(|transaction| Op::Transaction(Box::new(transaction))),
        (key_range(), any::<bool>(), 1u32..=10_000).prop_map(|(keys, back, limit)| Op::Scan {
            keys,
            order: if back { ScanOrder::Descending } else { ScanOrder::Ascending },
            limit,
        }),
    ]
}

fn op_id() -> impl Strategy<Value = OpId> {
    (1u128.., 1u64.., any::<u64>(), any::<u64>()).prop_map(|(client, number, done, stamp)| OpId {
        client: ClientId::new(Uuid::from_u128(client)),
        number,
        done_below: done.min(number),
        stamp: Millis::new(stamp),
    })
}

fn partition_id() -> impl Strategy<Value = PartitionId> {
    (1u64.., any::<u32>()).prop_map(|(table, index)| PartitionId::new(TableId::new(table), index))
}

pub(crate) fn tagged_op() -> impl Strategy<Value = TaggedOp> {
    (any::<u64>(), partition_id(), option::of(op_id()), op()).prop_map(|(tag, partition, id, op)| TaggedOp {
        tag,
        partition,
        id,
        op,
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let entry = (key(), bytes(), revision(), option::of(millis())).prop_map(|(key, value, revision, expires)| Entry {
        key,
        value,
        revision,
        expires,
    });
    let stored = || {
        (bytes(), revision(), option::of(millis())).prop_map(|(value, revision, expires)| StoredValue {
            value,
            revision,
            expires,
        })
    };
    prop_oneof![
        option::of(stored()).prop_map(Answer::Value),
        vec(option::of(stored()), 0..4).prop_map(Answer::Values),
        (revision(), any::<u32>()).prop_map(|(revision, removed)| Answer::Applied { revision, removed }),
        (any::<u32>(), revision()).prop_map(|(check, revision)| Answer::CheckFailed { check, revision }),
        revision().prop_map(|revision| Answer::Written { revision }),
        any::<bool>().prop_map(|existed| Answer::Deleted { existed }),
        revision().prop_map(|revision| Answer::ConditionFailed { revision }),
        (any::<i64>(), revision()).prop_map(|(value, revision)| Answer::Counter { value, revision }),
        Just(Answer::NotANumber),
        (vec(entry, 0..8), any::<bool>(), key_range()).prop_map(|(entries, more, range)| Answer::Page {
            entries,
            more,
            range
        }),
    ]
}

pub(crate) fn error_detail() -> impl Strategy<Value = ErrorDetail> {
    let number = || option::of(any::<u64>());
    (select(ErrorKind::ALL), ".{0,60}", option::of("[a-z]{1,9}:[0-9]{1,4}"), number(), number(), number(), number())
        .prop_map(|(kind, message, leader, retry_after_ms, table_version, have, need)| ErrorDetail {
            kind,
            message: into_plain(message),
            retry_after_ms,
            leader,
            table_version: table_version.map(Version::new),
            have,
            need,
        })
}

pub(crate) fn tagged_reply() -> impl Strategy<Value = TaggedReply> {
    let outcome = prop_oneof![answer().prop_map(Ok), error_detail().prop_map(Err)];
    (any::<u64>(), any::<u64>(), outcome).prop_map(|(tag, log_time, outcome)| TaggedReply {
        tag,
        log_time: Millis::new(log_time),
        outcome,
    })
}

fn node() -> impl Strategy<Value = Node> {
    let address = "[a-z]{1,9}:[1-9][0-9]{1,3}";
    let names = ("[a-z][a-z0-9._-]{0,20}", address, option::of("[a-z]{1,5}"), option::of(address));
    let states = (
        select(&[NodeStatus::Alive, NodeStatus::Failed, NodeStatus::Lost][..]),
        select(&[NodeGoal::Serve, NodeGoal::Cordon, NodeGoal::Drain, NodeGoal::Maintain][..]),
    );
    let numbers = (1u64.., any::<u64>(), WEIGHTS, option::of(any::<u32>()), any::<u64>(), any::<u64>());
    (names, states, numbers).prop_map(|((name, address, zone, redis), (status, goal), numbers)| {
        let (id, incarnation, weight, partitions_max, version, since) = numbers;
        Node {
            id: NodeId::new(id),
            name,
            address,
            incarnation: Incarnation::new(incarnation),
            status,
            goal,
            zone,
            weight,
            partitions_max,
            version: Version::new(version),
            since: Millis::new(since),
            redis,
        }
    })
}

fn split() -> impl Strategy<Value = Box<Split>> {
    let stages = select(&[RightStage::Copying, RightStage::Mirroring, RightStage::Formed][..]);
    let copies = vec((1u64.., 1u64.., stages), 0..4);
    let numbers = (any::<u64>(), any::<u32>(), option::of((any::<u64>(), any::<u64>())), any::<bool>());
    (numbers, "[a-z]{1,4}", copies).prop_map(|((attempt, right, position, cut), at, copies)| {
        let copy = |(id, node, stage)| RightCopy { id: PlacementId::new(id), node: NodeId::new(node), stage };
        Box::new(Split {
            attempt: Version::new(attempt),
            at: at.into(),
            right,
            copies: copies.into_iter().map(copy).collect(),
            position: position.map(|(epoch, seq)| Position::new(Epoch::new(epoch), Seq::new(seq))),
            cut,
        })
    })
}

fn merge() -> impl Strategy<Value = Box<Merge>> {
    let absorbs = (any::<u32>(), option::of("[a-z]{1,4}"));
    let absorbs = absorbs.prop_map(|(right, end)| MergeSide::Absorbs { right, end: end.map(Into::into) });
    let side = absorbs.boxed().prop_union(any::<u32>().prop_map(|left| MergeSide::Yields { left }).boxed());
    (any::<u64>(), side).prop_map(|(attempt, side)| Box::new(Merge { attempt: Version::new(attempt), side }))
}

/// Generates a row of table 1 with `partitions` partitions.
fn row(partitions: u32) -> impl Strategy<Value = Partition> {
    let states = select(&[ReplicaState::Load, ReplicaState::Live, ReplicaState::Unload][..]);
    const STATUSES: &[PartitionStatus] = &[
        PartitionStatus::Unassigned,
        PartitionStatus::Assigned,
        PartitionStatus::Online,
        PartitionStatus::Unavailable,
        PartitionStatus::Offline,
    ];
    let placements = proptest::collection::btree_map(1u64.., (1u64.., states), 0..6);
    let keys = (key_range(), option::of(split()), option::of(merge()), any::<u64>());
    let row = (0..partitions, any::<u64>(), any::<u64>(), placements, select(STATUSES), any::<bool>(), 1u8..=7, keys);
    row.prop_map(|(index, epoch, version, placements, status, led, min_in_sync, keys)| {
        let (range, split, merge, absorbed) = keys;
        let placements: Vec<Placement> = placements
            .into_iter()
            .map(|(id, (node, state))| Placement { id: PlacementId::new(id), node: NodeId::new(node), state })
            .collect();
        let live = placements.iter().find(|placement| placement.state == ReplicaState::Live);
        Partition {
            id: PartitionId::new(TableId::new(1), index),
            epoch: Epoch::new(epoch),
            version: Version::new(version),
            leader: live.filter(|_| led).map(|placement| placement.id),
            placements,
            status,
            min_in_sync,
            range,
            split,
            merge,
            absorbed: Version::new(absorbed),
        }
    })
}

fn removed() -> impl Strategy<Value = RemovedNodes> {
    (proptest::collection::btree_set(1u64.., 0..6), any::<u64>()).prop_map(|(there, version)| {
        let last = NodeId::new(there.last().copied().unwrap_or(9).saturating_add(1));
        RemovedNodes::all_but(there.into_iter().map(NodeId::new), last, Version::new(version))
    })
}

fn limits(count: u32) -> RangeLimits {
    let count = u64::from(count);
    let bytes = (count % 2 == 1).then_some(SPLIT_BYTES_MIN + count);
    RangeLimits {
        split_above_bytes: bytes,
        split_above_rate: (count % 5 == 0).then_some(SPLIT_RATE_MIN * count),
        merge_below_bytes: (count % 3 == 0).then_some(count + 1),
    }
}

pub(crate) fn delta() -> impl Strategy<Value = TableDelta> {
    (1u32..=16_384, 1u8..=7, any::<u64>(), any::<u64>())
        .prop_flat_map(|(partitions, replication, since, version)| {
            (
                Just((partitions, replication, since, version)),
                vec(row(partitions), 0..6),
                vec(node(), 0..4),
                option::of(removed()),
            )
        })
        .prop_map(|((count, replication, since, version), partitions, nodes, removed)| TableDelta {
            table: Table {
                id: TableId::new(1),
                name: "default".into(),
                keys: if count % 3 == 0 {
                    Keys::Range { next: count, limits: limits(count) }
                } else {
                    Keys::Hash { partitions: count }
                },
                replication,
                holds: if count % 2 == 0 { TableContent::Data } else { TableContent::Lease },
                version: Version::new(version),
            },
            since: Version::new(since),
            version: Version::new(version),
            partitions,
            nodes,
            removed,
        })
}

/// Generates a well-formed delta with some numbers replaced by any others.
pub(crate) fn garbage_delta() -> impl Strategy<Value = v1::TableDelta> {
    (delta(), any::<u32>(), any::<i32>(), option::of(any::<u64>()), any::<bool>()).prop_map(
        |(delta, number, state, leader, table)| {
            let mut wire = v1::TableDelta::from(delta);
            if let (Some(info), true) = (wire.table.as_mut(), table) {
                info.keys = Some(v1::table_info::Keys::HashPartitions(number));
            }
            for row in &mut wire.partitions {
                row.leader = leader.or(row.leader);
                row.min_in_sync = number % 9;
                for placement in &mut row.placements {
                    placement.state = state % 5;
                }
            }
            wire
        },
    )
}
