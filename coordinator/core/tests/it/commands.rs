//! Commands: bootstrap, limits, repeated requests, and serialisation.

use crate::bed::{TestBed, boxed, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use uuid::Uuid;

#[test]
fn commands_before_bootstrap_are_retryable() {
    let mut bed = TestBed::empty();
    let kind = bed.refused(boxed(register("athens", 1, 1)));
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(kind.is_retryable());
}

#[test]
fn bootstrap_happens_once() {
    let mut bed = TestBed::new(settings(9, 3, 1));
    let again = |id| Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(id)), settings: settings(9, 3, 1) };
    let before = bed.state.clone();
    bed.ok(again(7));
    assert_eq!(ClusterState { applied: before.applied, ..bed.state.clone() }, before);
    assert_eq!(bed.refused(again(8)), ErrorKind::AlreadyExists);
    assert_eq!(bed.state.partitions.len(), 9);
}

#[test]
fn settings_that_would_break_leases_are_refused() {
    let mut bed = TestBed::empty();
    let mut bad = settings(9, 3, 1);
    bad.timing.failure_timeout_ms = 1_000;
    let bootstrap = Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(7)), settings: bad.clone() };
    // Before bootstrap no setting could have changed.
    assert!(bed.one(bootstrap).refusal().is_some_and(|error| error.message.contains("1.01")));
    assert!(!bed.state.is_bootstrapped());
}

#[test]
fn repeated_request_gets_its_first_answer() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let create = Command::CreateTable {
        name: "orders".into(),
        partitioning: Partitioning::Hash { partitions: 4 },
        replication: 1,
        holds: TableContent::Data,
    };
    let request = Some(RequestId::new(Uuid::from_u128(5)));
    let batch = CommandBatch { request, ..bed.batch(vec![create.clone()]) };
    let first = bed.commit_batch(&batch);
    let before = bed.state.clone();
    assert_eq!(bed.commit_batch(&batch), first);
    assert_eq!(ClusterState { applied: before.applied, ..bed.state.clone() }, before);
    assert_eq!(bed.refused(create), ErrorKind::AlreadyExists);
    // The memory is bounded by count and by age.
    for number in 0..3_000u128 {
        let request = Some(RequestId::new(Uuid::from_u128(100 + number)));
        let batch = CommandBatch { request, ..bed.batch(vec![]) };
        apply(&mut bed.state, 10 + number as u64, &batch);
    }
    assert_eq!(bed.state.answers.len(), 1_024);
    bed.now = bed.now.plus(700_000);
    let late = CommandBatch { request: Some(RequestId::new(Uuid::from_u128(1))), ..bed.batch(vec![]) };
    apply(&mut bed.state, 9_999, &late);
    assert_eq!(bed.state.answers.len(), 1);
}

#[test]
fn table_creation_respects_limits() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let create = |name: &str, partitions, replication| Command::CreateTable {
        name: name.into(),
        partitioning: Partitioning::Hash { partitions },
        replication,
        holds: TableContent::Data,
    };
    assert_eq!(bed.refused(create("t", 0, 1)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("t", 16_385, 1)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("t", 1, 0)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("t", 1, 8)), ErrorKind::InvalidArgument);
    assert_eq!(bed.refused(create("bad name", 1, 1)), ErrorKind::InvalidArgument);
    // Applied directly: checking every invariant of a million rows each time would take long.
    for number in 0..63 {
        let batch = bed.batch(vec![create(&format!("t{number}"), 16_384, 1)]);
        assert!(apply(&mut bed.state, 10 + number, &batch)[0].refusal().is_none());
    }
    let batch = bed.batch(vec![create("t63", 16_384, 1)]);
    assert_eq!(apply(&mut bed.state, 100, &batch)[0].refusal().map(|error| error.kind), Some(ErrorKind::Refused));
}

#[test]
fn commands_survive_serialisation() {
    let mut bed = TestBed::running(settings(9, 3, 1), &["athens", "byzantium", "cyrene"]);
    let athens = bed.node("athens");
    let commands = vec![
        boxed(register("x", 1, 2)),
        failed_command(&bed, athens),
        plan(&bed.state, Goal::default()).start(),
        Command::SetNode { node: athens, goal: NodeGoal::Drain, if_nodes: None },
        Command::CancelPlan,
    ];
    let batch = bed.batch(commands);
    let bytes = rmp_serde::to_vec_named(&batch).unwrap();
    assert_eq!(rmp_serde::from_slice::<CommandBatch>(&bytes).unwrap(), batch);
    assert_eq!(serde_json::from_str::<CommandBatch>(&serde_json::to_string(&batch).unwrap()).unwrap(), batch);
    assert!(batch.to_string().contains("Register NodeFailed StartPlan"));
    let responses = bed.commit_batch(&batch);
    let bytes = rmp_serde::to_vec_named(&responses).unwrap();
    assert_eq!(rmp_serde::from_slice::<Vec<Response>>(&bytes).unwrap(), responses);
}

fn failed_command(bed: &TestBed, node: NodeId) -> Command {
    on_stopping(&bed.state, &bed.liveness, node, bed.incarnation(node)).expect("its present life").remove(0)
}

#[test]
fn void_entry_changes_only_the_index() {
    let mut bed = TestBed::new(settings(1, 1, 1));
    let before = bed.state.clone();
    skip(&mut bed.state, 50);
    assert_eq!(bed.state, ClusterState { applied: 50, ..before });
}

#[test]
fn range_table_starts_with_given_split_keys() {
    let mut bed = TestBed::running(settings(4, 3, 2), &["athens", "byzantium", "cyrene"]);
    let create = |points: &[&'static str], holds| {
        let split_at = points.iter().map(|point| (*point).into()).collect();
        let replication = if holds == TableContent::Lease { 1 } else { 2 };
        Command::CreateTable {
            name: "times".into(),
            partitioning: Partitioning::Range { split_at, limits: RangeLimits::NONE },
            replication,
            holds,
        }
    };
    for (points, holds) in
        [(&["b", "a"][..], TableContent::Data), (&["a", "a"], TableContent::Data), (&["a"], TableContent::Lease)]
    {
        assert_eq!(bed.refused(create(points, holds)), ErrorKind::InvalidArgument, "{points:?}");
    }
    let Response::TableCreated { table } = bed.ok(create(&["g", "p"], TableContent::Data)) else {
        panic!("not created")
    };
    assert_eq!(bed.state.tables[&table].keys, Keys::Range { next: 3, limits: RangeLimits::NONE });
    let ends: Vec<_> = bed.state.partitions.of_table(table).map(|row| row.range.end.clone()).collect();
    assert_eq!(ends, [Some("g".into()), Some("p".into()), None]);
    bed.settle();
    assert!(bed.state.partitions.of_table(table).all(|row| row.live().count() == 2 && row.leader.is_some()));
    check(&bed.state).unwrap();
    bed.round_trip();
}
