//! Tests of the plain calls of `Kv`, as clients in other languages make them, against a real node.

use crate::support::{Fake, Kv, PARTITION, row};
use archon_kv::DedupLimits;
use archon_kvstore_node::Node;
use archon_proto::convert::error::{METADATA_KEY, detail_of};
use archon_proto::v1;
use archon_testkit::{ScratchDirectory, wait_for_async};
use archon_types::{
    Duty, ErrorDetail, ErrorKind, KeyRange, Keys, NodeId, Partition, PartitionId, PlacementId, RangeLimits,
    ReplicaState, RightCopy, RightStage, Split, limits,
};
use bytes::Bytes;
use prost::Message as _;
use std::time::Duration;
use uuid::Uuid;

/// Returns a client for plain calls, the node that serves one partition, and the values that must outlive the node.
async fn serving() -> (Kv, Node, (Fake, ScratchDirectory)) {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 1, 1, &[(1, fake.id("athens"), ReplicaState::Live)])).await;
    (fake.kv("athens").await, node, (fake, directory))
}

async fn cas(kv: &mut Kv, key: &str, expected: u64, value: &str) -> Result<u64, ErrorDetail> {
    let request = v1::CompareAndSetRequest {
        cluster: Some(kv.cluster.into()),
        key: Bytes::copy_from_slice(key.as_bytes()),
        expected,
        value: Bytes::copy_from_slice(value.as_bytes()),
        ..Default::default()
    };
    let answer = kv.client.compare_and_set(request).await.map_err(|status| detail_of(&status))?;
    Ok(answer.into_inner().revision)
}

async fn increment(kv: &mut Kv, key: &str, by: i64, id: Option<v1::OpId>) -> Result<i64, ErrorDetail> {
    let key = Bytes::copy_from_slice(key.as_bytes());
    let request = v1::IncrementRequest { cluster: Some(kv.cluster.into()), key, by, id, ..Default::default() };
    Ok(kv.client.increment(request).await.map_err(|status| detail_of(&status))?.into_inner().value)
}

async fn scan(kv: &mut Kv, request: v1::ScanRequest) -> Result<v1::AnswerPage, ErrorDetail> {
    let request = v1::ScanRequest { cluster: Some(kv.cluster.into()), ..request };
    Ok(kv.client.scan(request).await.map_err(|status| detail_of(&status))?.into_inner().page.unwrap())
}

async fn batch(kv: &mut Kv, ops: Vec<v1::op::Op>) -> Result<Vec<v1::Reply>, ErrorDetail> {
    let ops = (0..).zip(ops).map(|(tag, op)| v1::Op { tag, op: Some(op), ..Default::default() }).collect();
    let request = v1::BatchRequest { cluster: Some(kv.cluster.into()), ops, ..Default::default() };
    Ok(kv.client.batch(request).await.map_err(|status| detail_of(&status))?.into_inner().replies)
}

fn error(reply: &v1::Reply) -> Option<ErrorKind> {
    match &reply.answer {
        Some(v1::reply::Answer::Error(error)) => ErrorKind::from_code(error.kind),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_has_a_plain_call() {
    let (mut kv, node, _held) = serving().await;
    kv.put_when_served("warm", "up").await;

    let first = cas(&mut kv, "k", 0, "v1").await.unwrap();
    let second = cas(&mut kv, "k", first, "v2").await.unwrap();
    let refused = cas(&mut kv, "k", first, "v3").await.unwrap_err();
    assert_eq!((refused.kind, refused.have), (ErrorKind::ConditionFailed, Some(second)));
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v2"));

    assert_eq!(increment(&mut kv, "n", 5, None).await, Ok(5));
    let id = v1::OpId {
        client: Uuid::from_u128(7).into_bytes().to_vec().into(),
        number: 1,
        done_below: 0,
        stamp_ms: Some(0),
    };
    assert_eq!(increment(&mut kv, "n", -7, Some(id.clone())).await, Ok(-2));
    assert_eq!(increment(&mut kv, "n", -7, Some(id)).await, Ok(-2), "a retry takes effect once");
    assert_eq!(increment(&mut kv, "k", 1, None).await.unwrap_err().kind, ErrorKind::WrongValueType);

    let all = v1::ScanRequest { limit: 2, ..Default::default() };
    let page = scan(&mut kv, all.clone()).await.unwrap();
    let keys = |page: &v1::AnswerPage| page.entries.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>();
    assert_eq!((keys(&page), page.more), (vec!["k".into(), "n".into()], true));
    let rest = v1::ScanRequest { after: "n".into(), partition: Some(0), ..all.clone() };
    assert_eq!(keys(&scan(&mut kv, rest).await.unwrap()), [Bytes::from("warm")]);
    let wrong = |request| async { scan(&mut kv.clone(), request).await.unwrap_err() };
    assert_eq!(wrong(v1::ScanRequest { limit: 0, ..all.clone() }).await.kind, ErrorKind::InvalidArgument);
    let nowhere = wrong(v1::ScanRequest { partition: Some(1), ..all }).await;
    assert!(nowhere.message.contains("no partition 1"), "{nowhere}");

    let key = Bytes::from_static(b"b");
    let ops = vec![
        v1::op::Op::Put(v1::OpPut { key: key.clone(), value: "x".into() }),
        v1::op::Op::Get(v1::OpGet { key: "k".into() }),
        v1::op::Op::Get(v1::OpGet { key: Bytes::new() }),
        v1::op::Op::Scan(v1::OpScan { keys: None, descending: false, limit: 1 }),
        v1::op::Op::CompareAndSet(v1::OpCompareAndSet { key: "k".into(), expected: first, value: "no".into() }),
        v1::op::Op::Delete(v1::OpDelete { key: "warm".into() }),
    ];
    let replies = batch(&mut kv, ops).await.unwrap();
    assert_eq!(replies.iter().map(|reply| reply.tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(matches!(replies[0].answer, Some(v1::reply::Answer::Written(_))) && replies[0].log_time_ms > 0);
    assert!(matches!(&replies[1].answer, Some(v1::reply::Answer::Value(found)) if found.value == "v2"));
    assert_eq!([error(&replies[2]), error(&replies[3])], [Some(ErrorKind::InvalidArgument); 2]);
    assert!(matches!(&replies[4].answer, Some(v1::reply::Answer::ConditionFailed(now)) if now.revision == second));
    assert!(matches!(&replies[5].answer, Some(v1::reply::Answer::Deleted(deleted)) if deleted.existed));
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_calls_bound_requests_and_answers() {
    let (mut kv, node, _held) = serving().await;
    let large = "x".repeat(limits::VALUE_BYTES_MAX);
    for number in 0..3 {
        kv.put_when_served(&format!("large-{number}"), &large).await;
    }
    let beyond = format!("{large}x");
    assert_eq!(cas(&mut kv, "k", 0, &beyond).await.unwrap_err().kind, ErrorKind::InvalidArgument);
    let get = |key: String| v1::op::Op::Get(v1::OpGet { key: key.into() });
    let many = vec![get("k".into()); limits::BATCH_OPS_MAX + 1];
    let refused = batch(&mut kv, many).await.unwrap_err();
    assert!(refused.kind == ErrorKind::InvalidArgument && refused.message.contains("BatchRequest.ops"), "{refused}");
    // Three values of 1 MiB do not fit into one answer that every gRPC client accepts.
    let replies = batch(&mut kv, (0..3).map(|number| get(format!("large-{number}"))).collect()).await.unwrap();
    assert_eq!(error(&replies[0]), None);
    assert!(replies.iter().any(|reply| error(reply) == Some(ErrorKind::Overloaded)));
    // The values that were left out can be read with another request.
    let again = batch(&mut kv, vec![get("large-2".into())]).await.unwrap();
    assert_eq!(error(&again[0]), None);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_on_several_keys_come_by_batch() {
    let (mut kv, node, _held) = serving().await;
    kv.put_when_served("warm", "up").await;
    let put = |key: &'static str| {
        let change = v1::write::Change::Put(v1::WritePut { value: "v".into(), expiry: None });
        v1::Write { key: key.into(), change: Some(change) }
    };
    let absent = || vec![v1::Check { key: "{t}a".into(), expected: 0 }];
    let write = |writes| v1::op::Op::Transaction(v1::OpTransaction { checks: absent(), writes });
    let replies = batch(&mut kv, vec![write(vec![put("{t}a"), put("{t}b")])]).await.unwrap();
    let Some(v1::reply::Answer::Applied(applied)) = &replies[0].answer else { panic!("{replies:?}") };
    let read = v1::op::Op::GetMany(v1::OpGetMany { keys: vec!["{t}c".into(), "{t}b".into()] });
    let replies = batch(&mut kv, vec![write(vec![put("{t}c")]), read]).await.unwrap();
    let failed = v1::AnswerCheckFailed { check: 0, revision: applied.revision };
    assert_eq!(replies[0].answer, Some(v1::reply::Answer::CheckFailed(failed)));
    let Some(v1::reply::Answer::Values(found)) = &replies[1].answer else { panic!("{replies:?}") };
    let found: Vec<_> = found.values.iter().map(|value| (value.found, value.revision)).collect();
    assert_eq!(found, [(false, 0), (true, applied.revision)]);
    let twice = batch(&mut kv, vec![write(vec![put("{t}d"), put("{t}d")])]).await.unwrap();
    assert_eq!(error(&twice[0]), Some(ErrorKind::InvalidArgument));
    node.stop().await.unwrap();
}

fn op_name(client: u128, number: u64, stamp_ms: Option<u64>) -> v1::OpId {
    let client = Uuid::from_u128(client).into_bytes().to_vec().into();
    v1::OpId { client, number, done_below: number, stamp_ms }
}

/// Pushes the rows of a table of ranges; athens hosts the first one.
async fn host_ranges(fake: &Fake, rows: &[Partition]) {
    let duty = Duty::Host { partition: rows[0].clone(), placement: PlacementId::new(1) };
    let mut push = fake.duties("athens", &rows[0], vec![duty]);
    let delta = &mut push.deltas[0].delta;
    delta.table.keys = Keys::Range { next: 2, limits: RangeLimits::default() };
    delta.partitions = rows.to_vec();
    let pushed = fake.send("athens", push).await.unwrap();
    assert!(pushed.refused.is_empty(), "{pushed:?}");
}

/// The client gets no answer to the first attempt, and retries at the same partition after its keys were divided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_transaction_is_answered_from_records_after_split() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.played("berlin", NodeId::new(9), 5);
    let athens = fake.id("athens");
    let left = |version| row(1, version, 1, &[(1, athens, ReplicaState::Live)]);
    host_ranges(&fake, &[left(1)]).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("warm", "up").await;

    let write = |key: &'static str| {
        let change = v1::write::Change::Put(v1::WritePut { value: "v".into(), expiry: None });
        v1::Write { key: key.into(), change: Some(change) }
    };
    let transaction = async |mut kv: Kv, id: Option<v1::OpId>, partition: Option<u32>| {
        let writes = vec![write("a"), write("z")];
        let op = v1::Op {
            partition: partition.map(|index| v1::PartitionId { table: PARTITION.table.get(), index }),
            id,
            op: Some(v1::op::Op::Transaction(v1::OpTransaction { checks: Vec::new(), writes })),
            ..Default::default()
        };
        let request = v1::BatchRequest { cluster: Some(kv.cluster.into()), ops: vec![op], ..Default::default() };
        kv.client.batch(request).await.unwrap().into_inner().replies.remove(0)
    };
    let first = transaction(kv.clone(), Some(op_name(7, 1, Some(0))), Some(0)).await;
    assert!(matches!(first.answer, Some(v1::reply::Answer::Applied(_))), "{first:?}");

    let copies = vec![RightCopy { id: PlacementId::new(2), node: athens, stage: RightStage::Copying }];
    let mut splitting = left(2);
    let (attempt, at) = (splitting.version, Bytes::from_static(b"m"));
    splitting.split = Some(Box::new(Split { attempt, at: at.clone(), right: 1, copies, cut: true, position: None }));
    host_ranges(&fake, &[splitting]).await;
    let range = KeyRange { begin: Bytes::new(), end: Some(at.clone()) };
    let right = Partition {
        id: PartitionId::new(PARTITION.table, 1),
        range: KeyRange { begin: at, end: None },
        ..row(1, 3, 3, &[(3, NodeId::new(9), ReplicaState::Live)])
    };
    host_ranges(&fake, &[Partition { range, ..left(3) }, right]).await;

    wait_for_async("the keys to be divided", Duration::from_secs(60), async || {
        let unplaced = transaction(kv.clone(), None, None).await;
        let is_divided = error(&unplaced) == Some(ErrorKind::InvalidArgument);
        if is_divided { Ok(()) } else { Err(format!("{unplaced:?}")) }
    })
    .await;
    let again = transaction(kv.clone(), Some(op_name(7, 1, Some(0))), Some(0)).await;
    assert_eq!(again.answer, first.answer);
    // A write that was not done there moves with its keys.
    let late = transaction(kv.clone(), Some(op_name(8, 1, Some(0))), Some(0)).await;
    assert_eq!(error(&late), Some(ErrorKind::Moved), "{late:?}");
    node.stop().await.unwrap();
}

/// Adds 1 to the key `n`.
async fn increment_named(kv: &mut Kv, id: v1::OpId) -> Result<i64, v1::ErrorDetail> {
    let cluster = Some(kv.cluster.into());
    let request = v1::IncrementRequest { cluster, key: "n".into(), by: 1, id: Some(id), ..Default::default() };
    let answer = kv.client.increment(request).await.map_err(|status| {
        let detail = status.metadata().get_bin(METADATA_KEY).unwrap().to_bytes().unwrap();
        v1::ErrorDetail::decode(detail).unwrap()
    })?;
    Ok(answer.into_inner().value)
}

/// Makes the partition forget its first client: one more client writes than the partition remembers.
async fn forget_a_client(kv: &mut Kv) {
    let clients = u128::try_from(DedupLimits::DEFAULT.clients_max).unwrap() + 1;
    let names: Vec<u128> = (1_000..1_000 + clients).collect();
    for names in names.chunks(500) {
        let put = |client: &u128| v1::Op {
            id: Some(op_name(*client, 1, Some(0))),
            op: Some(v1::op::Op::Put(v1::OpPut { key: "k".into(), value: "v".into() })),
            ..Default::default()
        };
        let ops = names.iter().map(put).collect();
        let request = v1::BatchRequest { cluster: Some(kv.cluster.into()), ops, ..Default::default() };
        kv.client.batch(request).await.unwrap();
    }
}

/// A new client has no stamp to send, so the node stamps its first write also after the partition has forgotten a
/// client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unstamped_first_write_is_applied_after_forgetting() {
    let (mut kv, node, _held) = serving().await;
    kv.put_when_served("warm", "up").await;
    forget_a_client(&mut kv).await;

    let kind = |detail: v1::ErrorDetail| ErrorKind::from_code(detail.kind);
    let unknown = increment_named(&mut kv, op_name(1, 1, Some(0))).await.unwrap_err();
    assert_eq!((unknown.stamp_ms, unknown.log_time_ms.is_some()), (Some(0), true));
    assert_eq!(kind(unknown), Some(ErrorKind::MaybeApplied));
    assert_eq!(increment_named(&mut kv, op_name(1, 1, None)).await, Ok(1));
    for retry in [None, Some(0)] {
        assert_eq!(increment_named(&mut kv, op_name(1, 1, retry)).await, Ok(1), "its outcome is remembered");
    }
    assert_eq!(increment_named(&mut kv, op_name(2, 2, None)).await, Ok(2));

    // The error of a write that the node stamped names the stamp, and a retry with it gets the same verdict.
    let done_with = increment_named(&mut kv, op_name(2, 1, None)).await.unwrap_err();
    let stamp = done_with.stamp_ms.filter(|stamp| *stamp > 0);
    assert!(stamp.is_some() && done_with.log_time_ms >= stamp, "{done_with:?}");
    let again = increment_named(&mut kv, op_name(2, 1, stamp)).await.unwrap_err();
    assert_eq!((again.stamp_ms, kind(again)), (stamp, Some(ErrorKind::MaybeApplied)));
    // A write that is refused before it is stamped has no stamp.
    let nameless = v1::OpId { done_below: 9, ..op_name(3, 1, None) };
    assert_eq!(increment_named(&mut kv, nameless).await.unwrap_err().stamp_ms, None);

    // Each write of a batch is stamped separately.
    let increment = v1::op::Op::Increment(v1::OpIncrement { key: "n".into(), by: 1 });
    let of = |client| v1::Op { id: Some(op_name(client, 1, None)), op: Some(increment.clone()), ..Default::default() };
    let request = v1::BatchRequest { cluster: Some(kv.cluster.into()), ops: vec![of(4), of(5)], ..Default::default() };
    let replies = kv.client.batch(request).await.unwrap().into_inner().replies;
    assert!(replies.iter().all(|reply| matches!(reply.answer, Some(v1::reply::Answer::Counter(_)))), "{replies:?}");
    assert_eq!(increment_named(&mut kv, op_name(6, 1, None)).await, Ok(5));
    node.stop().await.unwrap();
}

/// The error is final: the caller does not retry until its own deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_table_is_not_found() {
    let (mut kv, node, _held) = serving().await;
    kv.put_when_served("k", "v").await;
    let (cluster, table) = (Some(kv.cluster.into()), "ordres".to_owned());
    let get = v1::GetRequest { cluster: cluster.clone(), table: table.clone(), key: "k".into() };
    let missing = detail_of(&kv.client.get(get).await.unwrap_err());
    assert_eq!(missing.kind, ErrorKind::NotFound, "{missing}");
    assert!(missing.message.contains("knows no table \"ordres\"; `archon table list`"), "{missing}");
    let scan = v1::ScanRequest { cluster: cluster.clone(), table: table.clone(), limit: 1, ..Default::default() };
    assert_eq!(detail_of(&kv.client.scan(scan).await.unwrap_err()).kind, ErrorKind::NotFound);
    let batch = v1::BatchRequest { cluster, table, ops: Vec::new() };
    assert_eq!(detail_of(&kv.client.batch(batch).await.unwrap_err()).kind, ErrorKind::NotFound);
    node.stop().await.unwrap();
}

/// The coordinators have created the table, and this node has not received it: it may not deny it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_that_was_not_pushed_yet_is_not_denied() {
    let (mut kv, node, (fake, _directory)) = serving().await;
    kv.put_when_served("k", "v").await;
    fake.state.lock().tables.push("orders".to_owned());
    let get = v1::GetRequest { cluster: Some(kv.cluster.into()), table: "orders".to_owned(), key: "k".into() };
    let unknown = detail_of(&kv.client.get(get.clone()).await.unwrap_err());
    assert_eq!(unknown.kind, ErrorKind::Unavailable, "{unknown}");
    assert!(unknown.retry_after_ms.is_some(), "{unknown}");
    // Neither to a caller that has seen it elsewhere.
    let address = format!("http://{}", fake.known("athens").unwrap().address);
    let mut routes = v1::table_client::TableClient::connect(address).await.unwrap();
    let later = v1::GetTableRequest { table: "orders".to_owned(), since: 1 << 30, ..Default::default() };
    let unknown = detail_of(&routes.get_table(later).await.unwrap_err());
    assert_eq!(unknown.kind, ErrorKind::Unavailable, "{unknown}");
    // Without an answer of the coordinators it is not denied either.
    fake.state.lock().grants_stopped = true;
    let unknown = detail_of(&kv.client.get(get.clone()).await.unwrap_err());
    assert_eq!(unknown.kind, ErrorKind::Unavailable, "{unknown}");
    {
        let mut state = fake.state.lock();
        (state.grants_stopped, state.tables) = (false, Vec::new());
    }
    wait_for_async("the node to hold a lease again", Duration::from_secs(60), async || {
        let denied = detail_of(&kv.client.clone().get(get.clone()).await.unwrap_err());
        if denied.kind == ErrorKind::NotFound { Ok(()) } else { Err(denied) }
    })
    .await;
    node.stop().await.unwrap();
}
