//! The plain calls of `Kv`, as a client of another language makes them, against a real node.

#![allow(clippy::unwrap_used)]

mod support;

use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind, ReplicaState, limits};
use bytes::Bytes;
use support::{Fake, Kv, row};
use uuid::Uuid;

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
async fn every_operation_can_be_called_plainly() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 1, 1, &[(1, fake.id("athens"), ReplicaState::Live)])).await;
    let mut kv = fake.kv("athens").await;
    kv.put_when_served("warm", "up").await;

    let first = cas(&mut kv, "k", 0, "v1").await.unwrap();
    let second = cas(&mut kv, "k", first, "v2").await.unwrap();
    let refused = cas(&mut kv, "k", first, "v3").await.unwrap_err();
    assert_eq!((refused.kind, refused.have), (ErrorKind::ConditionFailed, Some(second)));
    assert_eq!(kv.get("k").await.unwrap().as_deref(), Some("v2"));

    assert_eq!(increment(&mut kv, "n", 5, None).await, Ok(5));
    let id =
        v1::OpId { client: Uuid::from_u128(7).into_bytes().to_vec().into(), number: 1, done_below: 0, stamp_ms: 0 };
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
async fn plain_calls_are_bounded_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 1, 1, &[(1, fake.id("athens"), ReplicaState::Live)])).await;
    let mut kv = fake.kv("athens").await;
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
    // Three values of 1 MiB do not fit into one answer that every gRPC client takes.
    let replies = batch(&mut kv, (0..3).map(|number| get(format!("large-{number}"))).collect()).await.unwrap();
    assert_eq!(error(&replies[0]), None);
    assert!(replies.iter().any(|reply| error(reply) == Some(ErrorKind::Overloaded)));
    // What was left out is there for those who ask again.
    let again = batch(&mut kv, vec![get("large-2".into())]).await.unwrap();
    assert_eq!(error(&again[0]), None);
    node.stop().await.unwrap();
}
