//! Messages of the wire: protobuf, then the checked conversion, then back and forth again.

use crate::protobuf;
use crate::target::{Target, Verdict};
use archon_proto::convert::{admin, control, kv, load, operate, report, session};
use archon_proto::v1;
use archon_types::{
    ClusterId, Epoch, ErrorDetail, Incarnation, Millis, Node, NodeGoal, NodeId, NodeStatus, Partition, PartitionId,
    PartitionStatus, Placement, PlacementId, ReplicaState, Settings, StorageId, Table, TableDelta, TableId, Version,
};
use prost::Message;
use std::fmt::{Debug, Display};
use uuid::Uuid;

/// Messages that have no conversion of their own because the service that gets them checks their few fields in place.
/// They are decoded only; everything else must be in the list of conversions.
pub const CHECKED_IN_PLACE: &[&str] = &[
    "ApplyPlanResponse",
    "BatchRequest",
    "BatchResponse",
    "CancelRebalanceRequest",
    "CancelRebalanceResponse",
    "CheckNodeRequest",
    "CheckNodeResponse",
    "CompareAndSetRequest",
    "CompareAndSetResponse",
    "CopyPage",
    "CopyRequest",
    "CreateTableResponse",
    "DeleteRequest",
    "DeleteResponse",
    "DescribePartitionRequest",
    "DescribePartitionResponse",
    "EventsRequest",
    "EventsResponse",
    "ExplainRequest",
    "ExplainResponse",
    "ForceLeaderResponse",
    "GetRequest",
    "GetResponse",
    "GetTableRequest",
    "GetTableResponse",
    "HelloRequest",
    "HelloResponse",
    "IncrementRequest",
    "IncrementResponse",
    "LeaveResponse",
    "ListNodesRequest",
    "ListNodesResponse",
    "ListTablesRequest",
    "ListTablesResponse",
    "LoseNodeResponse",
    "PlanRebalanceRequest",
    "PlanRebalanceResponse",
    "PutRequest",
    "PutResponse",
    "QuorumRequest",
    "QuorumResponse",
    "RaftMessage",
    "ReadStatsRequest",
    "ReadStatsResponse",
    "RebalanceStatusRequest",
    "RebalanceStatusResponse",
    "RemoveNodeResponse",
    "ReplyBatch",
    "ReportResponse",
    "ScanRequest",
    "ScanResponse",
    "SetNodeResponse",
    "SnapshotChunk",
    "StatusRequest",
    "StatusResponse",
];

macro_rules! conversion {
    ($wire:ident => $ours:ty) => {
        Target {
            generate: Some(protobuf::generate),
            ..Target::new(concat!("wire/", stringify!($wire)), there_and_back::<v1::$wire, $ours>, Vec::new)
        }
    };
}

/// Decodes, converts, and takes what was accepted there and back once more.
fn there_and_back<W, O>(input: &[u8]) -> Verdict
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

/// Which variants and fields a value has, without what is in them.
fn shape(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| word.starts_with(|first: char| first.is_ascii_uppercase()))
        .take(24)
        .collect::<Vec<_>>()
        .join(" ")
}

fn batch_of_operations(input: &[u8]) -> Verdict {
    let batch = match v1::OpBatch::decode(input) {
        Ok(batch) => batch,
        Err(error) => return Verdict::Refused(format!("protobuf: {error}")),
    };
    Verdict::of(kv::check_batch(&batch.ops, "OpBatch.ops"), |()| format!("{} operations", batch.ops.len().min(9)))
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

/// Settings are accepted only when their times fit together, which chance does not bring about.
fn registered() -> Vec<Vec<u8>> {
    let registered = session::Registered {
        cluster: ClusterId::new(Uuid::from_u128(1)),
        node: NodeId::new(3),
        incarnation: Incarnation::new(12),
        protocol: 1,
        settings: Settings::default(),
    };
    vec![v1::RegisterResponse::from(registered).encode_to_vec()]
}

fn deltas() -> Vec<Vec<u8>> {
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
    };
    let node = Node {
        id: node,
        name: "athens".into(),
        address: "127.0.0.1:7001".into(),
        storage: StorageId::new(Uuid::from_u128(4)),
        incarnation: Incarnation::new(6),
        status: NodeStatus::Live,
        goal: NodeGoal::Serve,
        zone: Some("east".into()),
        weight: 100,
        partitions_max: None,
        version: Version::new(6),
        since: Millis::new(1_700_000_000_000),
    };
    let delta = TableDelta {
        table: Table { id: table, name: "default".into(), partitions: 9, replication: 1, version: Version::new(2) },
        since: Version::ZERO,
        version: Version::new(9),
        partitions: vec![partition],
        nodes: vec![node],
    };
    vec![v1::TableDelta::from(delta).encode_to_vec()]
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        conversion!(RegisterRequest => session::Registration),
        Target { seeds: registered, ..conversion!(RegisterResponse => session::Registered) },
        conversion!(LeaveRequest => session::Member),
        conversion!(HeartbeatRequest => session::Heartbeat),
        conversion!(HeartbeatResponse => session::HeartbeatAnswer),
        conversion!(NodeLoad => load::Load),
        conversion!(ReportRequest => report::Reports),
        conversion!(PushRequest => control::Push),
        conversion!(PushResponse => control::Pushed),
        Target { seeds: deltas, ..conversion!(TableDelta => TableDelta) },
        conversion!(Partition => Partition),
        conversion!(Settings => Settings),
        conversion!(Op => kv::TaggedOp),
        conversion!(Reply => kv::TaggedReply),
        conversion!(SetNodeRequest => admin::SetNode),
        conversion!(CreateTableRequest => admin::CreateTable),
        conversion!(ApplyPlanRequest => admin::ApplyPlan),
        conversion!(Plan => admin::Plan),
        conversion!(RemoveNodeRequest => operate::RemoveNode),
        conversion!(LoseNodeRequest => operate::LoseNode),
        conversion!(ForceLeaderRequest => operate::ForceLeader),
        Target { generate: Some(protobuf::generate), ..Target::new("wire/OpBatch", batch_of_operations, Vec::new) },
        Target { generate: Some(protobuf::generate), ..Target::new("wire/ErrorDetail", error_detail, Vec::new) },
    ]
}
