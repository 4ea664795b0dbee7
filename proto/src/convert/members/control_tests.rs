//! Tests of pushes of duties.

use super::*;
use crate::convert::testing;
use archon_types::{
    Epoch, ErrorKind, KeyRange, Partition, PartitionId, PartitionStatus, Placement, ReplicaState, Right, Scope,
    TableDelta,
};
use proptest::prelude::*;
use uuid::Uuid;

fn duties(delta: &TableDelta) -> Vec<Duty> {
    let mut duties = Vec::new();
    for partition in &delta.partitions {
        let placement = PlacementId::new(7);
        duties.push(Duty::Host { partition: partition.clone(), placement });
        duties.push(Duty::HandOver { partition: partition.clone(), placement, to: PlacementId::new(8) });
        duties.push(Duty::Unload { partition: partition.id, placement });
        duties.push(Duty::Inspect { placement });
    }
    duties
}

proptest! {
    #[test]
    fn push_round_trips(delta in testing::delta(), omitted in any::<bool>(), next in proptest::option::of(8u64..), tables in proptest::collection::btree_set(1u64.., 0..5)) {
        let last = TableId::new(tables.last().copied().unwrap_or(0).saturating_add(1));
        let tables = TableList { version: Version::new(9), last, tables: tables.into_iter().map(TableId::new).collect() };
        let mut access = AccessList { version: Version::new(8), ..AccessList::default() };
        std::sync::Arc::make_mut(&mut access.access).set(&Scope { client: Some("shop".into()), table: next.map(TableId::new) }, Some(Right::Read));
        let push = Push {
            tables: next.map(|_| tables),
            access: next.map(|_| access),
            cluster: ClusterId::new(Uuid::from_u128(1)),
            coordinator: 1,
            term: 2,
            node: NodeId::new(3),
            // Versions are drawn from the full range.
            incarnation: Incarnation::new(u64::MAX),
            key: PushKey::new(Uuid::from_u128(6)),
            newest: Version::new(u64::MAX),
            version: Version::new(5),
            duties: if omitted { None } else { Some(duties(&delta)) },
            nodes: Some(NodeDelta {
                since: delta.since,
                version: delta.version,
                nodes: delta.nodes.clone(),
                removed: delta.removed.clone(),
            }),
            deltas: vec![TablePiece { delta, from: 7, next }],
            complete: next.map(Version::new),
            coordinators: vec!["127.0.0.1:7001".into()],
        };
        prop_assert_eq!(Push::try_from(v1::PushRequest::from(push.clone())), Ok(push));
    }

    #[test]
    fn any_bytes_are_a_push_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(wire) = v1::PushRequest::decode(&bytes[..]) {
            let _ = Push::try_from(wire);
        }
    }
}

/// Returns the encoded length of the longest duty with this number of copies, and numbers that no cluster reaches.
fn duty_bytes(copies: u8) -> usize {
    const NUMBER: u64 = 1 << 48;
    let id = |number: u8| PlacementId::new(NUMBER + u64::from(number));
    let placement = |number| Placement { id: id(number), node: NodeId::new(NUMBER), state: ReplicaState::Load };
    let partition = Partition {
        id: PartitionId::new(TableId::new(NUMBER), u32::MAX),
        epoch: Epoch::new(NUMBER),
        version: Version::new(NUMBER),
        leader: Some(id(0)),
        placements: (0..copies).map(placement).collect(),
        status: PartitionStatus::Online,
        min_in_sync: copies,
        range: KeyRange { begin: Bytes::new(), end: Some(Bytes::new()) },
        split: None,
        merge: None,
        absorbed: Version::new(NUMBER),
    };
    let host = Duty::Host { partition: partition.clone(), placement: id(0) };
    let duties = [host, Duty::HandOver { partition, placement: id(0), to: id(1) }];
    let bytes = duties
        .map(|duty| v1::PushRequest { duties: vec![v1::Duty::from(duty)], ..v1::PushRequest::default() }.encoded_len());
    bytes.into_iter().max().unwrap()
}

#[test]
fn duties_at_every_bound_fit_into_one_message() {
    const KEYS: usize = 2 * limits::SPLIT_KEYS_BYTES_MAX;
    // Nodes, and rows up to the first piece that fills the push; each piece ends with one node or row beyond its bound.
    const DELTAS: usize = 4 * limits::PIECE_BYTES_MAX;
    let of_node = limits::NODE_ASSIGNED_MAX as usize * duty_bytes(limits::REPLICAS_MAX) + KEYS + DELTAS;
    assert!(of_node <= limits::PUSH_BYTES_MAX, "{of_node}");
    // A lease that is handed over has its owner and the next one.
    let of_participant = limits::PARTICIPANT_ASSIGNED_MAX as usize * duty_bytes(2);
    assert!(of_participant <= limits::MESSAGE_BYTES_MAX / 2, "{of_participant}");
}

#[test]
fn announcement_of_too_many_or_malformed_addresses_is_refused() {
    let cluster = ClusterId::new(Uuid::from_u128(1));
    let request = |coordinators: Vec<String>| v1::ConfirmBootRequest {
        cluster: Some(cluster.into()),
        coordinators,
        ..v1::ConfirmBootRequest::default()
    };
    let some = |count: usize| vec!["c1.test:7101".to_owned(); count];
    assert_eq!(announced(request(some(0))), Ok(None));
    assert_eq!(announced(request(some(16))), Ok(Some((cluster, some(16)))));
    assert!(announced(request(some(17))).is_err());
    assert!(announced(request(vec!["c1.test".to_owned()])).is_err());
    assert_eq!(announced(v1::ConfirmBootRequest { cluster: None, ..request(some(1)) }), Ok(None));
}

#[test]
fn push_with_impossible_versions_is_refused() {
    let push = |version: u64, newest: u64| Push {
        cluster: ClusterId::new(Uuid::from_u128(1)),
        coordinator: 1,
        term: 2,
        node: NodeId::new(3),
        incarnation: Incarnation::new(40),
        key: PushKey::new(Uuid::from_u128(6)),
        newest: Version::new(newest),
        version: Version::new(5),
        duties: Some(Vec::new()),
        nodes: Some(NodeDelta {
            since: Version::ZERO,
            version: Version::new(version),
            nodes: Vec::new(),
            removed: None,
        }),
        deltas: Vec::new(),
        tables: None,
        access: None,
        complete: None,
        coordinators: vec!["127.0.0.1:7001".into()],
    };
    let convert = |push: Push| Push::try_from(v1::PushRequest::from(push)).map_err(|error| error.to_string());
    convert(push(50, 50)).unwrap();
    // Rows of the last version would never be replaced.
    assert!(convert(push(u64::MAX, 50)).unwrap_err().contains("NodeDelta.version"));
    assert!(convert(push(51, 50)).unwrap_err().contains("above the push's"));
    assert!(convert(push(50, u64::MAX)).unwrap_err().contains("cannot be"));
    let list = |version, last, tables: &[u64]| {
        let tables = tables.iter().copied().map(TableId::new).collect();
        let list = TableList { version: Version::new(version), last: TableId::new(last), tables };
        convert(Push { tables: Some(list), ..push(50, 50) })
    };
    list(50, 4, &[1, 4]).unwrap();
    assert!(list(51, 4, &[1, 4]).unwrap_err().contains("TableList.version"));
    // Tables missing in such a list would be taken for dropped ones.
    for tables in [&[4, 1][..], &[1, 1], &[0, 1], &[1, 5]] {
        assert!(list(50, 4, tables).unwrap_err().contains("TableList.tables"), "{tables:?}");
    }
    let many = Push { coordinators: vec!["127.0.0.1:7001".into(); 17], ..push(50, 50) };
    assert!(convert(many).unwrap_err().contains("PushRequest.coordinators"));
    let mut keyless = v1::PushRequest::from(push(50, 50));
    keyless.key.clear();
    assert!(Push::try_from(keyless).is_err());
}

#[test]
fn push_answer_round_trips_and_empty_duty_is_refused() {
    let pushed = PushAnswer {
        version: Version::new(5),
        gap: true,
        refused: vec![(PlacementId::new(7), ErrorDetail::new(ErrorKind::InvalidArgument, "why"))],
    };
    assert_eq!(PushAnswer::try_from(v1::PushResponse::from(pushed.clone())), Ok(pushed));
    assert!(Duty::try_from(v1::Duty { duty: None }).is_err());
}
