//! The client against in-memory nodes: messages, their number, and failures.

use crate::support::{Behaviour, FakeCluster};
use archon_client::{Answer, Client, Error, ErrorDetail, ErrorKind, Op, Revision, TransactionOutcome};
use archon_testkit::wait_for_state;
use archon_types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use archon_types::{ClusterId, Millis, Version};
use bytes::Bytes;
use futures::future::join_all;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time-out of the clients: an immediate end takes much less, on a busy machine too.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn client_of(cluster: &FakeCluster) -> Client {
    Client::builder(cluster.addresses()).timeout(TIMEOUT).build().await.unwrap()
}

#[tokio::test]
async fn every_operation_returns_its_revision() {
    let cluster = FakeCluster::start(2, 9).await;
    let client = client_of(&cluster).await;
    let first = client.put("a", "1").await.unwrap();
    let found = client.get("a").await.unwrap().unwrap();
    assert_eq!((found.value.as_ref(), found.revision), (b"1".as_ref(), first));
    let second = client.compare_and_set("a", first, "2").await.unwrap();
    assert_eq!(client.compare_and_set("a", first, "3").await, Err(Error::ConditionFailed { found: second }));
    assert_eq!(client.compare_and_set("new", Revision::ZERO, "x").await.map(|_| ()), Ok(()));
    assert_eq!(client.increment("counter", 5).await.unwrap().value, 5);
    assert_eq!(client.increment("counter", -7).await.unwrap().value, -2);
    assert_eq!(client.increment("new", 1).await, Err(Error::NotANumber));
    assert!(client.delete("a").await.unwrap());
    assert!(!client.delete("a").await.unwrap());
    assert_eq!(client.get("a").await.unwrap(), None);
    let ops = vec![
        Op::Put { key: "b".into(), value: "7".into() },
        Op::Get { key: "counter".into() },
        Op::Get { key: Bytes::new() },
    ];
    let results = client.batch(ops).await.unwrap();
    assert!(matches!(results[0], Ok(Answer::Written { .. })));
    assert!(matches!(&results[1], Ok(Answer::Value(Some(found))) if found.value.as_ref() == b"-2"));
    assert!(matches!(results[2], Err(Error::InvalidArgument { .. })));
    client.close().await;
    assert_eq!(client.get("b").await, Err(Error::Closed));
}

#[tokio::test]
async fn put_if_absent_succeeds_once_even_if_its_answer_is_lost() {
    let cluster = FakeCluster::start(1, 9).await;
    let client = client_of(&cluster).await;
    let puts = join_all((0..20).map(|number| client.put_if_absent("first", format!("caller {number}")))).await;
    let written: Vec<(usize, Revision)> = puts
        .into_iter()
        .enumerate()
        .filter_map(|(number, put)| put.unwrap().map(|revision| (number, revision)))
        .collect();
    let [(number, revision)] = written[..] else { panic!("{} of 20 wrote it: {written:?}", written.len()) };
    let found = client.get("first").await.unwrap().unwrap();
    assert_eq!((found.value, found.revision), (Bytes::from(format!("caller {number}")), revision));
    assert!(client.delete("first").await.unwrap());
    // The write is applied, and its repetition does not fail because the key exists.
    cluster.nodes[0].state.set(Behaviour::ApplyThenBreak);
    let again = client.put_if_absent("first", "again").await.unwrap().expect("it was absent");
    assert!(again > revision, "{again:?} after {revision:?}");
    assert_eq!(client.put_if_absent("first", "other").await, Ok(None));
    assert_eq!(client.get("first").await.unwrap().unwrap().value, Bytes::from("again"));
    let empty = client.put_if_absent("", "value").await.unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::InvalidArgument, "{empty}");
}

#[tokio::test]
async fn transaction_writes_all_keys_or_none() {
    let cluster = FakeCluster::start(2, 9).await;
    let client = client_of(&cluster).await;
    let first = client.put("{t}a", "1").await.unwrap();
    let move_it = || client.transaction().check("{t}a", first).check_absent("{t}b").delete("{t}a").put("{t}b", "1");
    let moved = move_it().commit().await.unwrap();
    let TransactionOutcome::Committed { revision, removed: 1 } = moved else { panic!("{moved:?}") };
    let failed = TransactionOutcome::CheckFailed { key: Bytes::from_static(b"{t}a"), found: Revision::ZERO };
    assert_eq!(move_it().put("{t}c", "never").commit().await, Ok(failed));
    let found = client.get_many(["{t}a", "{t}b", "{t}c", "{t}b"]).await.unwrap();
    let values: Vec<_> =
        found.iter().map(|found| found.as_ref().map(|found| (&found.value[..], found.revision))).collect();
    assert_eq!(values, [None, Some((&b"1"[..], revision)), None, Some((&b"1"[..], revision))]);
    // The first attempt is carried out, and the second one finds its outcome.
    cluster.nodes[0].state.set(Behaviour::ApplyThenBreak);
    cluster.nodes[1].state.set(Behaviour::ApplyThenBreak);
    let once = client.transaction().check("{t}b", revision).put("{t}b", "2").put("{t}c", "2").commit().await;
    assert!(matches!(once, Ok(TransactionOutcome::Committed { removed: 0, .. })), "{once:?}");
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    let divided = client.get_many(&keys).await.unwrap_err();
    assert!(divided.to_string().contains("several partitions"), "{divided}");
    let divided = keys.iter().fold(client.transaction(), |transaction, key| transaction.put(key, "x"));
    assert_eq!(divided.commit().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(client.transaction().commit().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[tokio::test]
async fn concurrent_operations_share_messages() {
    let cluster = FakeCluster::start(1, 9).await;
    let client = client_of(&cluster).await;
    client.get("warm").await.unwrap();
    let before = cluster.count(|node| &node.messages);
    let puts = (0..2_000).map(|i| {
        let client = client.clone();
        tokio::spawn(async move { client.put(format!("key-{i}"), "value").await })
    });
    for put in join_all(puts).await {
        put.unwrap().unwrap();
    }
    let messages = cluster.count(|node| &node.messages) - before;
    assert_eq!(cluster.count(|node| &node.ops), 2_001);
    assert!(messages <= 200, "2,000 operations took {messages} messages");
    assert_eq!(cluster.count(|node| &node.streams), 1);
}

#[tokio::test]
async fn restarted_node_is_used_again_without_double_writes() {
    let mut cluster = FakeCluster::start(1, 3).await;
    let client = client_of(&cluster).await;
    assert_eq!(client.increment("n", 1).await.unwrap().value, 1);
    cluster.nodes[0].kill();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.increment("n", 1).await }
    });
    tokio::task::yield_now().await;
    cluster.nodes[0].restart().await;
    assert_eq!(waiting.await.unwrap().unwrap().value, 2);
    // Applied, but the answer is lost: the retry has the same name.
    cluster.nodes[0].state.set(Behaviour::ApplyThenBreak);
    assert_eq!(client.increment("n", 1).await.unwrap().value, 3);
    let ids = cluster.nodes[0].state.store.lock().unwrap().ids.clone();
    let (last, before) = (ids[ids.len() - 1], ids[ids.len() - 2]);
    assert_eq!((last.number, last.stamp, last.client), (before.number, before.stamp, before.client));
    assert!(cluster.count(|node| &node.streams) >= 3);
}

#[tokio::test]
async fn deadline_error_states_if_outcome_is_known() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await.with_timeout(Duration::from_millis(300));
    client.put("k", "1").await.unwrap();
    cluster.nodes[0].state.set(Behaviour::Silent);
    for write in [false, true] {
        let began = Instant::now();
        let error = match write {
            true => client.put("k", "2").await.unwrap_err(),
            false => client.get("k").await.unwrap_err(),
        };
        let elapsed = began.elapsed();
        assert!((Duration::from_millis(290)..TIMEOUT / 2).contains(&elapsed), "{elapsed:?}");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(error.outcome_unknown(), write);
        assert_eq!(error.to_string().contains("outcome unknown"), write, "{error}");
    }
}

#[tokio::test]
async fn operation_does_not_wait_for_replaced_leader() {
    let cluster = FakeCluster::start(2, 1).await;
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    cluster.nodes[0].state.set(Behaviour::Silent);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.put("k", "2").await }
    });
    wait_for_state("the put to be under way", || cluster.count(|node| &node.ops), |ops| *ops == 2).await;
    let began = Instant::now();
    cluster.set_table(6, |_| Some(2));
    waiting.await.unwrap().unwrap();
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
    assert_eq!(cluster.nodes[1].state.ops.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn oversized_keys_and_values_are_rejected_locally() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let huge = vec![0_u8; VALUE_BYTES_MAX + 1];
    let refused = [
        client.get("").await.unwrap_err(),
        client.get(&long).await.unwrap_err(),
        client.put("k", huge.clone()).await.unwrap_err(),
        client.compare_and_set("k", Revision::ZERO, huge).await.unwrap_err(),
        client.scan("").limit(0).page().await.unwrap_err(),
        client.scan(&long).limit(1).page().await.unwrap_err(),
        client.batch(vec![Op::Put { key: "k".into(), value: vec![0; 1 << 20].into() }; 5]).await.unwrap_err(),
        client.batch(vec![Op::Get { key: "k".into() }; 4_097]).await.unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
    assert_eq!(cluster.count(|node| &node.streams), 0);
    // Any bytes are a key, and values of the maximum length are accepted.
    client.put(b"\xff", "v").await.unwrap();
    client.put("k".repeat(KEY_BYTES_MAX), vec![7_u8; VALUE_BYTES_MAX]).await.unwrap();
}

/// A merge, for example, raises the time before which a partition forgot its answers, while a rejected caller waits.
#[tokio::test]
async fn rejected_write_is_never_reported_as_maybe_applied() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    let state = &cluster.nodes[0].state;
    state.log_time.store(100, Ordering::SeqCst);
    state.set(Behaviour::Refuse(ErrorDetail::new(ErrorKind::Unavailable, "not now")));
    let refused = tokio::spawn(async move { client.increment("n", 1).await });
    wait_for_state("a refusal", || state.ops.load(Ordering::SeqCst), |ops| *ops > 0).await;
    state.set(Behaviour::Forgotten(Millis::new(50)));
    assert_eq!(refused.await.unwrap().unwrap().value, 1);
}

#[tokio::test]
async fn rejected_write_gets_new_stamp_and_open_write_does_not() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    let state = &cluster.nodes[0].state;
    state.log_time.store(100, Ordering::SeqCst);
    state.set(Behaviour::Forgotten(Millis::new(50)));
    assert_eq!(client.increment("n", 1).await.unwrap().value, 1);
    assert_eq!(state.ops.load(Ordering::SeqCst), 2);
    // Applied, the answer lost, and then forgotten by the server: the outcome cannot be determined any more.
    let (fresh, waiting) = (client_of(&cluster).await, client.clone());
    state.set(Behaviour::Silent);
    let lost = tokio::spawn(async move { fresh.increment("n", 1).await });
    let kept = tokio::spawn(async move { waiting.get("n").await });
    wait_for_state("both to be under way", || state.ops.load(Ordering::SeqCst), |ops| *ops == 4).await;
    state.set(Behaviour::Forgotten(Millis::new(50)));
    let mut cluster = cluster;
    cluster.nodes[0].restart().await;
    let error = lost.await.unwrap().unwrap_err();
    assert!(error.outcome_unknown() && matches!(error, Error::MaybeApplied { .. }), "{error:?}");
    assert!(kept.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn final_error_ends_the_call_at_once() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    cluster.nodes[0].state.set(Behaviour::Refuse(ErrorDetail::new(ErrorKind::StaleVersion, "no")));
    let error = client.put("k", "1").await.unwrap_err();
    assert_eq!((error.kind(), cluster.count(|node| &node.ops)), (ErrorKind::StaleVersion, 1));
    let overloaded = ErrorDetail::new(ErrorKind::Overloaded, "full").with_retry_after_ms(1_000);
    cluster.nodes[0].state.set(Behaviour::Refuse(overloaded));
    let error = client.with_timeout(Duration::from_millis(3_500)).put("k", "1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let asked = cluster.count(|node| &node.ops) - 1;
    assert!((2..=4).contains(&asked), "push-back of 1 s was not honoured: asked {asked} times in 3.5 s");
}

/// A partition that is handed over rejects all callers for some milliseconds with a time to retry after: the shared
/// retry budget that all of them exhausted must not delay them for half a second.
#[tokio::test]
async fn callers_retry_after_the_time_given_despite_the_budget() {
    const CALLERS: usize = 20;
    // A busy machine may be slow often, not always; by the budget alone three pauses take 750 ms at least.
    let begun = Instant::now();
    let mut took = vec![Duration::MAX];
    while took.iter().all(|took| *took >= Duration::from_millis(600)) {
        assert!(begun.elapsed() < TIMEOUT, "{took:?}");
        let cluster = FakeCluster::start(1, 1).await;
        let client = client_of(&cluster).await;
        let moving = ErrorDetail::new(ErrorKind::Unavailable, "moving").with_retry_after_ms(1);
        cluster.nodes[0].state.set(Behaviour::Refuse(moving));
        let began = Instant::now();
        let calls = join_all((0..CALLERS).map(|caller| client.put(format!("k{caller}"), "1")));
        let fourth = async {
            wait_for_state("the fourth attempts", || cluster.count(|node| &node.ops), |ops| *ops >= 4 * CALLERS).await;
            took.push(began.elapsed());
            cluster.nodes[0].state.set(Behaviour::Serve);
        };
        let (results, ()) = tokio::join!(calls, fourth);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
}

#[tokio::test]
async fn scan_merges_all_partitions_in_order_page_by_page() {
    let cluster = FakeCluster::start(3, 9).await;
    let client = client_of(&cluster).await;
    let keys: Vec<String> = (0..300).map(|i| format!("user-{i:04}")).collect();
    for result in join_all(keys.iter().map(|key| client.put(key, key.clone()))).await {
        result.unwrap();
    }
    client.put("other", "x").await.unwrap();
    let (mut found, mut after, mut pages) = (Vec::new(), Bytes::new(), 0);
    loop {
        let page = client.scan("user-").after(&after).limit(70).page().await.unwrap();
        pages += 1;
        found.extend(page.entries.iter().map(|entry| String::from_utf8(entry.key.to_vec()).unwrap()));
        assert!(page.entries.iter().all(|entry| entry.key == entry.value));
        match page.entries.last() {
            Some(last) if page.more => after = last.key.clone(),
            _ => break,
        }
    }
    assert_eq!((found, pages), (keys, 5));
    assert_eq!(client.scan("nothing").limit(10).page().await.unwrap().entries, []);
    // All keys of a prefix with a closed tag are in one partition: one operation, not nine.
    client.put("{t}a", "1").await.unwrap();
    let before = cluster.count(|node| &node.ops);
    assert_eq!(client.scan("{t}").limit(10).page().await.unwrap().entries.len(), 1);
    assert_eq!(cluster.count(|node| &node.ops) - before, 1);
}

#[tokio::test]
async fn build_needs_one_valid_endpoint_of_one_cluster() {
    let cluster = FakeCluster::start(1, 1).await;
    // No process listens on port 1 of loopback.
    let mut endpoints = vec!["127.0.0.1:1".to_owned()];
    let builder = Client::builder(endpoints.clone()).timeout(Duration::from_millis(300));
    let error = builder.build().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(matches!(Client::builder(["nonsense"]).build().await, Err(Error::InvalidArgument { .. })));
    endpoints.extend(cluster.addresses());
    let client = Client::builder(endpoints).build().await.unwrap();
    client.put("k", "1").await.unwrap();
    let error = client.table("nowhere").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn close_ends_open_calls_and_reports_unknown_outcomes() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    cluster.nodes[0].state.set(Behaviour::Silent);
    let (writer, reader) = (client.clone(), client.clone());
    let write = tokio::spawn(async move { writer.put("k", "2").await });
    let read = tokio::spawn(async move { reader.get("k").await });
    wait_for_state("both to be under way", || cluster.count(|node| &node.ops), |ops| *ops == 3).await;
    let began = Instant::now();
    client.close().await;
    assert!(write.await.unwrap().unwrap_err().outcome_unknown());
    assert_eq!(read.await.unwrap(), Err(Error::Closed));
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn endpoint_of_another_cluster_is_not_trusted() {
    let mut cluster = FakeCluster::start(2, 1).await;
    let client = Client::builder([cluster.nodes[0].address.as_str()]).build().await.unwrap();
    client.put("k", "1").await.unwrap();
    // A node of another cluster has started at the second node's address; its table is newer and must not be used.
    let other = FakeCluster::start_as(ClusterId::new(uuid::Uuid::from_u128(0xB2)), 1, 1).await;
    other.set_table(99, |_| None);
    let table = other.table(98, |_| Some(1));
    for node in &cluster.nodes {
        node.state.coordinators.lock().unwrap().push(other.nodes[0].address.clone());
    }
    cluster.set_table(6, |_| Some(1));
    wait_for_state("the new table", || client.table_version(), |version| *version == Version::new(6)).await;
    cluster.nodes[1].kill();
    cluster.nodes[0].state.hint.store(99, Ordering::SeqCst);
    client.put("k", "2").await.unwrap();
    wait_for_state("the stranger to be asked", || other.count(|node| &node.fetches), |fetches| *fetches > 0).await;
    client.put("k", "3").await.unwrap();
    assert!(client.table_version() < table.version, "took the table of another cluster");
}

/// A partition that has passed over many expired rows states how far it came.
#[tokio::test]
async fn scan_continues_beyond_expired_rows() {
    let cluster = FakeCluster::start(3, 9).await;
    let client = client_of(&cluster).await;
    let keys: Vec<String> = (0..300).map(|i| format!("user-{i:04}")).collect();
    for result in join_all(keys.iter().map(|key| client.put(key, key.clone()))).await {
        result.unwrap();
    }
    let lives = |number: usize| number % 100 == 50;
    let expired = keys.iter().enumerate().filter(|(number, _)| !lives(*number)).map(|(_, key)| key.clone().into());
    cluster.nodes[0].state.store.lock().unwrap().expired.extend(expired);
    let pages = [client.scan("").limit(2), client.scan("").limit(2).reverse(), client.scan("user-").limit(100)];
    let mut found = Vec::new();
    for page in pages {
        let page = page.page().await.unwrap();
        let keys = page.entries.iter().map(|entry| String::from_utf8(entry.key.to_vec()).unwrap());
        found.push((keys.collect::<Vec<_>>().join(" "), page.more));
    }
    let expected =
        [("user-0050 user-0150", true), ("user-0250 user-0150", true), ("user-0050 user-0150 user-0250", false)];
    assert_eq!(found, expected.map(|(keys, more)| (keys.to_owned(), more)));
}
