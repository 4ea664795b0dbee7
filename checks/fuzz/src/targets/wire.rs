//! Messages of the wire: protobuf, then the checked conversion, then a round trip.

use crate::protobuf;
use crate::target::{Target, Verdict};
use archon_documents::{
    AlterNode, AlterTable, ApplyPlan, BarName, ChangeQuorum, ChangeUpgrade, CheckCluster, Configure, CreateTable,
    DropTable, ForceLeader, GiveOrder, KeyText, ListAccess, LoseNode, METHODS, Order, PartitionName, QuorumAction,
    SetAccess, SetNode, SplitPartition, TransferLead, UpgradeAction, Withdraw, write,
};
use archon_proto::convert::kv;
use archon_proto::convert::kv::packed;
use archon_proto::convert::members::{control, duties, load, report, session};
use archon_proto::convert::tables::middle;
use archon_proto::v1;
use archon_testkit::Random;
use archon_types::WHENEVER;
use archon_types::op::Entry;

use archon_types::plan::{Move, Plan};
use archon_types::{
    AccessList, Answer, Change, Check, ClientId, ClusterId, Epoch, ErrorDetail, ErrorKind, Expiry, GenerationKey,
    Holds, Incarnation, KeyRange, Keys, ManyKeys, Millis, MoveCode, MoveKind, Node, NodeGoal, NodeId, NodeStatus, Op,
    OpId, Partition, PartitionId, PartitionStatus, Partitioning, Placement, PlacementId, PushKey, QuorumChange,
    RangeLimits, RemovedNodes, ReplicaState, Revision, Right, ScanOrder, Scope, Setting, SettingChange, Settings,
    Stored, Table, TableChange, TableDelta, TableId, TableList, TraceContext, TraitsChange, Transaction, Version,
    Write,
};
use archon_types::{pack_entry, unpack_entries};
use bytes::{Bytes, BytesMut};
use prost::Message;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use uuid::Uuid;

/// A message that is decoded, converted, and taken through a round trip.
macro_rules! conversion {
    ($wire:ident => $ours:ty) => {
        Target {
            generate: Some(protobuf::generate),
            ..Target::new(
                concat!("wire/", stringify!($wire)),
                $crate::targets::wire::there_and_back::<v1::$wire, $ours>,
                Vec::new,
            )
        }
    };
}
pub(super) use conversion;

/// Decodes, converts, and takes accepted input through another round trip.
pub(super) fn there_and_back<W, O>(input: &[u8]) -> Verdict
where
    W: Message + Default + From<O>,
    O: TryFrom<W> + Clone + PartialEq + Debug,
    <O as TryFrom<W>>::Error: Display,
{
    let wire = match W::decode(input) {
        Ok(wire) => wire,
        Err(error) => return Verdict::Refused(format!("protobuf: {error}")),
    };
    let ours = match O::try_from(wire) {
        Ok(ours) => ours,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let bytes = W::from(ours.clone()).encode_to_vec();
    let again = W::decode(bytes.as_slice()).ok().and_then(|wire| O::try_from(wire).ok());
    assert_eq!(again.as_ref(), Some(&ours), "what was accepted does not survive the way there and back");
    Verdict::Accepted(shape(&ours))
}

/// Returns the variants and fields of a value, without their contents.
pub(super) fn shape(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
        .take(24)
        .collect::<Vec<_>>()
        .join(" ")
}

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
    assert_eq!(again, Ok(Ok(ops.clone())), "operations change on their way");
    Verdict::Accepted(shape(&ops))
}

/// Packed answers, likewise.
fn packed_answers(input: &[u8]) -> Verdict {
    let read: Result<Vec<kv::TaggedReply>, _> = packed::unpack_replies(Bytes::copy_from_slice(input)).collect();
    Verdict::of(read, |replies| {
        let mut packer = packed::ReplyPacker::default();
        replies.iter().for_each(|reply| packer.push(reply));
        let again: Result<Vec<_>, _> = packed::unpack_replies(packer.finish()).collect();
        assert_eq!(again.as_ref(), Ok(replies), "answers change on their way");
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
            1 => Ok(Answer::Value(Some(Stored { expires: expires(random), ..Stored::new(bytes, revision) }))),
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
                let stored = Stored { expires: expires(random), ..Stored::new(bytes, revision) };
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

fn error_detail(input: &[u8]) -> Verdict {
    match v1::ErrorDetail::decode(input) {
        Ok(wire) => {
            let detail = ErrorDetail::from(wire);
            let again = ErrorDetail::from(v1::ErrorDetail::from(detail.clone()));
            assert_eq!(again, detail, "an error changes on its way");
            Verdict::Accepted(format!("{:?}", detail.kind))
        }
        Err(error) => Verdict::Refused(format!("protobuf: {error}")),
    }
}

/// Accepted settings: their times must fit together, which chance does not produce.
fn registered() -> Vec<Vec<u8>> {
    let registered = session::Registered {
        cluster: ClusterId::new(Uuid::from_u128(1)),
        node: NodeId::new(3),
        incarnation: Incarnation::new(12),
        generation_key: GenerationKey::new(Uuid::from_u128(6)),
        protocol: 1,
        settings: Settings::default(),
    };
    vec![v1::RegisterResponse::from(registered).encode_to_vec()]
}

/// As above, by themselves.
fn cluster_settings() -> Vec<Vec<u8>> {
    vec![v1::Settings::from(Settings { relays_from: 2, ..Settings::default() }).encode_to_vec()]
}

/// Returns a right of one client to one table.
fn access_list() -> AccessList {
    let mut list = AccessList { version: Version::new(8), ..AccessList::default() };
    Arc::make_mut(&mut list.access)
        .set(&Scope { client: Some("shop".into()), table: Some(TableId::new(1)) }, Some(Right::Write));
    Arc::make_mut(&mut list.access).set_withdrawn("admin/alice", Some(Millis::new(7)));
    Arc::make_mut(&mut list.access).set_withdrawn("coordinator/3", Some(WHENEVER));
    list
}

/// The names of rights, which chance does not hit.
fn accesses() -> Vec<Vec<u8>> {
    vec![v1::AccessList::from(access_list()).encode_to_vec()]
}

/// Documents of the administration: a request that a method accepts is written as it was read.
fn documents(input: &[u8]) -> Verdict {
    let mut accepted = Vec::new();
    let mut refused = String::new();
    for method in METHODS {
        match (method.rewrite)(input) {
            Ok(written) => {
                assert_eq!((method.rewrite)(&written).as_ref(), Ok(&written), "{} changes on its way", method.name);
                accepted.push(method.name);
            }
            Err(error) => refused = error.message,
        }
    }
    if accepted.is_empty() { Verdict::Refused(refused) } else { Verdict::Accepted(accepted.join(" ")) }
}

/// A request of each kind; chance does not hit the names of fields.
fn document_requests() -> Vec<Vec<u8>> {
    let change = |setting: &Setting| SettingChange { setting: *setting, value: setting.default_value() };
    let changes: Vec<SettingChange> = Setting::ALL.iter().map(change).collect();
    let withdraw = |begins_before_at_ms, readmit| Withdraw {
        identity: "admin/alice".into(),
        begins_before_at_ms,
        readmit,
        force: false,
    };
    let order = |order| GiveOrder { order, why: "a bad disk".into() };
    let step = Move {
        kind: MoveKind::Copy.into(),
        table_id: TableId::new(1),
        table: "orders".into(),
        partition: 4,
        from_id: NodeId::new(1),
        from: "athens".into(),
        to_id: NodeId::new(2),
        to: "byzantium".into(),
        bytes_total: 100,
        code: MoveCode::Balance.into(),
        message: "athens has 3, byzantium 0".into(),
        unknown: Default::default(),
    };
    let ranges = Partitioning::Range { split_at: vec!["m".into()], limits: RangeLimits::NONE };
    [
        write(&Configure::new(&changes, Some(Version::new(3)), true)),
        write(&SetAccess::new(Right::Write, Some("shop"), None, false)),
        write(&SetAccess::new(Right::Own, None, Some("orders"), true)),
        write(&withdraw(None, false)),
        write(&withdraw(Some(7), false)),
        write(&withdraw(None, true)),
        write(&ListAccess { client: Some("shop".into()), table: Some("orders".into()) }),
        write(&ChangeUpgrade { action: UpgradeAction::Hold }),
        write(&SetNode { node: "athens".into(), goal: NodeGoal::Drain.into() }),
        write(&AlterNode {
            node: "athens".into(),
            change: TraitsChange { zone: Some(None), weight: Some(50), partitions_max: Some(Some(3)) },
        }),
        write(&LoseNode { node: "athens".into(), accept_data_loss: true }),
        write(&order(Order::Bump(PartitionName::new("orders", 7)))),
        write(&order(Order::Bar(BarName { node: "athens".into(), table: "orders".into(), partition: Some(7) }))),
        write(&order(Order::Maintain { node: "athens".into(), for_ms: 60_000 })),
        write(&CheckCluster::default()),
        write(&ForceLeader { partition: PartitionName::new("orders", 7), node: None, accept_data_loss: false }),
        write(&SplitPartition {
            partition: PartitionName::new("orders", 7),
            at: Some(KeyText(Bytes::from_static(&[0xFF, 0]))),
            cancel: false,
            dry_run: true,
        }),
        write(&CreateTable::new("orders", Partitioning::Hash { partitions: 16 }, 3, Holds::Data)),
        write(&CreateTable::new("orders", ranges, 3, Holds::Data)),
        write(&AlterTable {
            table: "orders".into(),
            change: TableChange { replication: Some(3), ..Default::default() },
        }),
        write(&DropTable { table: "orders".into(), table_id: 7 }),
        write(&ChangeQuorum {
            action: QuorumChange::SetAddress { id: 3, address: "127.0.0.1:7103".into() }.into(),
            force: true,
        }),
        write(&ChangeQuorum { action: QuorumAction::Settle, force: true }),
        write(&TransferLead { coordinator_id: Some(3) }),
        write(&ApplyPlan { plan: Plan { moves: vec![step], ..Plan::default() } }),
    ]
    .into_iter()
    .filter_map(Result::ok)
    .collect()
}

fn pushes() -> Vec<Vec<u8>> {
    let push = control::Push {
        tables: Some(TableList { version: Version::new(1), last: TableId::new(3), tables: vec![TableId::new(1)] }),
        access: Some(access_list()),
        cluster: ClusterId::new(Uuid::from_u128(1)),
        coordinator: 1,
        term: 2,
        node: NodeId::new(3),
        incarnation: Incarnation::new(12),
        key: PushKey::new(Uuid::from_u128(6)),
        newest: Version::new(9),
        version: Version::new(9),
        duties: Some(Vec::new()),
        deltas: Vec::new(),
        nodes: None,
        complete: Some(Version::new(9)),
        coordinators: vec!["127.0.0.1:7101".into()],
    };
    vec![v1::PushRequest::from(push).encode_to_vec()]
}

/// Returns a table with a row and a node.
pub(super) fn deltas() -> Vec<Vec<u8>> {
    let (table, node) = (TableId::new(1), NodeId::new(3));
    let placement = Placement { id: PlacementId::new(5), node, state: ReplicaState::Live };
    let partition = Partition {
        id: PartitionId::new(table, 2),
        epoch: Epoch::new(1),
        version: Version::new(9),
        leader: Some(placement.id),
        placements: vec![placement],
        status: PartitionStatus::Online,
        min_in_sync: 1,
        range: KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    };
    let node = Node {
        id: node,
        name: "athens".into(),
        address: "127.0.0.1:7001".into(),
        incarnation: Incarnation::new(6),
        status: NodeStatus::Alive,
        goal: NodeGoal::Serve,
        zone: Some("east".into()),
        weight: 100,
        partitions_max: None,
        version: Version::new(6),
        since: Millis::new(1_700_000_000_000),
        redis: Some("127.0.0.1:6379".into()),
    };
    let delta = TableDelta {
        table: Table {
            id: table,
            name: "default".into(),
            keys: Keys::Hash { partitions: 9 },
            replication: 1,
            holds: Holds::Data,
            version: Version::new(2),
        },
        since: Version::ZERO,
        version: Version::new(9),
        partitions: vec![partition],
        nodes: vec![node],
        removed: Some(RemovedNodes { version: Version::new(8), ranges: vec![(NodeId::new(1), NodeId::new(2))] }),
    };
    vec![v1::TableDelta::from(delta).encode_to_vec()]
}

/// Parses the header with the trace context of a call.
fn trace_context(input: &[u8]) -> Verdict {
    let Ok(header) = std::str::from_utf8(input) else { return Verdict::Refused("no text".into()) };
    let Some(context) = TraceContext::parse(header) else { return Verdict::Refused("no context".into()) };
    let said = context.to_string();
    assert_eq!(TraceContext::parse(&said), Some(context), "what is passed on is not what came");
    assert_eq!(said[3..52], header[3..52], "the numbers are not those that came");
    Verdict::Accepted(format!("version {}, sampled: {}", &header[..2], context.is_sampled()))
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

fn trace_contexts() -> Vec<Vec<u8>> {
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let later = [&header.replacen("00", "cc", 1), "-more"].concat();
    [header, &header.replace("-01", "-00"), &later].map(|header| header.as_bytes().to_vec()).into()
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        conversion!(RegisterRequest => session::Registration),
        Target { seeds: registered, ..conversion!(RegisterResponse => session::Registered) },
        conversion!(LeaveRequest => session::Member),
        conversion!(DutiesRequest => duties::DutiesAsked),
        conversion!(DutiesResponse => duties::Duties),
        conversion!(NodeLoad => load::Load),
        conversion!(ReportRequest => report::Reports),
        Target { seeds: pushes, ..conversion!(PushRequest => control::Push) },
        conversion!(PushResponse => control::Pushed),
        Target { seeds: deltas, ..conversion!(TableDelta => archon_types::TablePiece) },
        conversion!(NodeDelta => archon_types::NodeDelta),
        conversion!(Partition => Partition),
        Target { seeds: cluster_settings, ..conversion!(Settings => Settings) },
        conversion!(Op => kv::KeyedOp),
        conversion!(Reply => kv::TaggedReply),
        Target { seeds: accesses, ..conversion!(AccessList => AccessList) },
        conversion!(FindMiddleRequest => middle::FindMiddle),
        conversion!(FindMiddleResponse => archon_types::Middle),
        Target {
            generate: Some(protobuf::generate),
            ..Target::new("wire/BatchRequest", batch_of_operations, Vec::new)
        },
        Target {
            generate: Some(generate_operations),
            ..Target::new("wire/packed operations", packed_operations, Vec::new)
        },
        Target { generate: Some(generate_answers), ..Target::new("wire/packed answers", packed_answers, Vec::new) },
        Target { generate: Some(protobuf::generate), ..Target::new("wire/ErrorDetail", error_detail, Vec::new) },
        Target::new("wire/documents", documents, document_requests),
        Target::new("wire/traceparent", trace_context, trace_contexts),
        Target::new("wire/packed-entries", packed_entries, packs_of_entries),
    ]
}
