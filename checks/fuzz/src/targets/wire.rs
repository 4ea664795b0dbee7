//! Messages of the wire: protobuf, then the checked conversion, then a round trip.

use crate::protobuf;
use crate::target::{Target, Verdict};
use archon_proto::convert::members::{control, duties, load, report, revocations, session};
use archon_proto::convert::tables::middle;
use archon_proto::v1;
use archon_types::{
    AccessList, ClusterId, Epoch, ErrorDetail, GenerationKey, Incarnation, KeyRange, Keys, Millis, Node, NodeGoal,
    NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Placement, PlacementId, PushKey, RemovedNodes,
    ReplicaState, Right, Scope, Settings, Table, TableContent, TableDelta, TableId, TableList, TraceContext, Version,
    WHENEVER,
};
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

fn error_detail(input: &[u8]) -> Verdict {
    match v1::ErrorDetail::decode(input) {
        Ok(wire) => {
            let detail = ErrorDetail::from(wire);
            let again = ErrorDetail::from(v1::ErrorDetail::from(detail.clone()));
            assert_eq!(again, detail, "decoding does not restore the error");
            Verdict::Accepted(format!("{:?}", detail.kind))
        }
        Err(error) => Verdict::Refused(format!("protobuf: {error}")),
    }
}

/// Accepted settings: their times must fit together, which chance does not produce.
fn registered() -> Vec<Vec<u8>> {
    let registered = session::RegistrationResult {
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
            holds: TableContent::Data,
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

fn trace_contexts() -> Vec<Vec<u8>> {
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let later = [&header.replacen("00", "cc", 1), "-more"].concat();
    [header, &header.replace("-01", "-00"), &later].map(|header| header.as_bytes().to_vec()).into()
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        conversion!(RegisterRequest => session::Registration),
        Target { seeds: registered, ..conversion!(RegisterResponse => session::RegistrationResult) },
        conversion!(LeaveRequest => session::Member),
        conversion!(DutiesRequest => duties::DutiesQuery),
        conversion!(DutiesResponse => duties::Duties),
        conversion!(RevocationsRequest => revocations::RevocationsQuery),
        conversion!(RevocationsResponse => revocations::Revocations),
        conversion!(NodeLoad => load::Load),
        conversion!(ReportRequest => report::Reports),
        Target { seeds: pushes, ..conversion!(PushRequest => control::Push) },
        conversion!(PushResponse => control::PushAnswer),
        Target { seeds: deltas, ..conversion!(TableDelta => archon_types::TablePiece) },
        conversion!(NodeDelta => archon_types::NodeDelta),
        conversion!(Partition => Partition),
        Target { seeds: cluster_settings, ..conversion!(Settings => Settings) },
        Target { seeds: accesses, ..conversion!(AccessList => AccessList) },
        conversion!(FindMiddleRequest => middle::FindMiddle),
        conversion!(FindMiddleResponse => archon_types::Middle),
        Target { generate: Some(protobuf::generate), ..Target::new("wire/ErrorDetail", error_detail, Vec::new) },
        Target::new("wire/traceparent", trace_context, trace_contexts),
    ]
}
