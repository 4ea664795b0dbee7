//! The client against nodes that exist only in memory: what travels, how often, and what happens when it does not.

use crate::support::{Behaviour, FakeCluster, wait_for};
use archon_client::{Answer, Client, Error, ErrorDetail, ErrorKind, Op, Revision};
use archon_types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use archon_types::{ClusterId, Millis, Version};
use bytes::Bytes;
use futures::future::join_all;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The clients' time-out: what ends at once takes much less, on a busy machine too.
const TIMEOUT: Duration = Duration::from_secs(20);

async fn client_of(cluster: &FakeCluster) -> Client {
    Client::builder(cluster.addresses()).timeout(TIMEOUT).build().await.unwrap()
}

#[tokio::test]
async fn every_operation_is_answered_with_its_revision() {
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
    assert!(matches!(&results[1], Ok(Answer::Value(Some((value, _)))) if value.as_ref() == b"-2"));
    assert!(matches!(results[2], Err(Error::InvalidArgument { .. })));
    client.close().await;
    assert_eq!(client.get("b").await, Err(Error::Closed));
}

#[tokio::test]
async fn a_key_is_put_if_it_is_absent_by_one_of_many_and_a_lost_answer_changes_nothing() {
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
    // It is applied, and its repetition is not told that the key is there.
    cluster.nodes[0].state.set(Behaviour::ApplyThenBreak);
    let again = client.put_if_absent("first", "again").await.unwrap().expect("it was absent");
    assert!(again > revision, "{again:?} after {revision:?}");
    assert_eq!(client.put_if_absent("first", "other").await, Ok(None));
    assert_eq!(client.get("first").await.unwrap().unwrap().value, Bytes::from("again"));
    let empty = client.put_if_absent("", "value").await.unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::InvalidArgument, "{empty}");
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
async fn a_redirect_costs_one_extra_hop_and_the_new_table_none() {
    let cluster = FakeCluster::start(2, 1).await;
    let (old, new) = (&cluster.nodes[0], &cluster.nodes[1]);
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    assert_eq!(old.state.ops.load(Ordering::SeqCst), 1);
    // The partition has moved; the client has not heard of it.
    old.state.set(Behaviour::Redirect(Some(new.address.clone())));
    let began = Instant::now();
    client.put("k", "2").await.unwrap();
    assert_eq!(old.state.ops.load(Ordering::SeqCst), 2);
    assert_eq!(new.state.ops.load(Ordering::SeqCst), 1);
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
    cluster.set_table(6, |_| Some(2));
    wait_for("the new table", || client.table_version(), |version| *version == Version::new(6)).await;
    client.put("k", "3").await.unwrap();
    assert_eq!(old.state.ops.load(Ordering::SeqCst), 2);
    assert_eq!(new.state.ops.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn two_nodes_that_point_at_each_other_are_not_asked_without_pause() {
    let cluster = FakeCluster::start(2, 1).await;
    let (one, two) = (&cluster.nodes[0], &cluster.nodes[1]);
    one.state.set(Behaviour::Redirect(Some(two.address.clone())));
    two.state.set(Behaviour::Redirect(Some(one.address.clone())));
    let client = client_of(&cluster).await.with_timeout(Duration::from_millis(700));
    let error = client.get("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotPartitionLeader);
    let asked = cluster.count(|node| &node.ops);
    assert!((4..=40).contains(&asked), "asked {asked} times");
}

#[tokio::test]
async fn a_killed_node_that_returns_is_used_again_and_nothing_is_applied_twice() {
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
    // Applied, but the answer is lost: the retry carries the same name.
    cluster.nodes[0].state.set(Behaviour::ApplyThenBreak);
    assert_eq!(client.increment("n", 1).await.unwrap().value, 3);
    let ids = cluster.nodes[0].state.store.lock().unwrap().ids.clone();
    let (last, before) = (ids[ids.len() - 1], ids[ids.len() - 2]);
    assert_eq!((last.number, last.stamp, last.client), (before.number, before.stamp, before.client));
    assert!(cluster.count(|node| &node.streams) >= 3);
}

#[tokio::test]
async fn a_deadline_is_kept_and_says_whether_the_outcome_is_known() {
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
async fn an_operation_does_not_wait_for_a_leader_that_was_replaced() {
    let cluster = FakeCluster::start(2, 1).await;
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    cluster.nodes[0].state.set(Behaviour::Silent);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.put("k", "2").await }
    });
    wait_for("the put to be under way", || cluster.count(|node| &node.ops), |ops| *ops == 2).await;
    let began = Instant::now();
    cluster.set_table(6, |_| Some(2));
    waiting.await.unwrap().unwrap();
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
    assert_eq!(cluster.nodes[1].state.ops.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_is_too_large_never_leaves_the_client() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let huge = vec![0_u8; VALUE_BYTES_MAX + 1];
    let refused = [
        client.get("").await.unwrap_err(),
        client.get(&long).await.unwrap_err(),
        client.get(b"\xff").await.unwrap_err(),
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
    // The largest that is allowed gets through.
    client.put("k".repeat(KEY_BYTES_MAX), vec![7_u8; VALUE_BYTES_MAX]).await.unwrap();
}

#[tokio::test]
async fn an_older_table_never_replaces_a_newer_one() {
    let cluster = FakeCluster::start(2, 1).await;
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    assert_eq!(client.table_version(), Version::new(5));
    // A node fell behind: it says that there is news, and serves an older table in which another node leads.
    cluster.set_table(3, |_| Some(2));
    cluster.nodes.iter().for_each(|node| node.state.whole.store(true, Ordering::SeqCst));
    let before = cluster.count(|node| &node.fetches);
    cluster.nodes[0].state.hint.store(9, Ordering::SeqCst);
    client.put("k", "2").await.unwrap();
    wait_for("a refresh", || cluster.count(|node| &node.fetches), |fetches| *fetches > before).await;
    client.put("k", "3").await.unwrap();
    assert_eq!(client.table_version(), Version::new(5));
    assert_eq!(cluster.nodes[1].state.ops.load(Ordering::SeqCst), 0);
    // The hint was followed once; it is not chased for ever.
    let settled = cluster.count(|node| &node.fetches);
    for _ in 0..50 {
        client.put("k", "4").await.unwrap();
    }
    assert!(cluster.count(|node| &node.fetches) <= settled + 2, "the hint is followed again and again");
}

#[tokio::test]
async fn a_table_in_pieces_is_used_when_it_is_whole_and_asked_for_anew_if_it_was_cut() {
    let cluster = FakeCluster::start(2, 16_384).await;
    let one = Client::builder(vec![cluster.addresses()[0].clone()]).build().await.unwrap();
    let fetches = || cluster.count(|node| &node.fetches);
    assert!(fetches() >= 2, "{} requests for the largest table", fetches());
    // Of partitions in every piece.
    for number in 0..64 {
        let key = format!("key-{number}");
        one.put(&key, "v").await.unwrap();
        assert!(one.get(&key).await.unwrap().is_some());
    }
    one.close().await;

    let before = fetches();
    cluster.nodes[0].state.cuts.store(true, Ordering::SeqCst);
    let other = Client::builder(vec![cluster.addresses()[0].clone()]).build().await.unwrap();
    assert!(fetches() >= before + 4, "two pieces of which the second was cut, and both again");
    assert!(!cluster.nodes[0].state.cuts.load(Ordering::SeqCst));
    assert!(other.get("key-1").await.unwrap().is_some());
    other.close().await;
}

#[tokio::test]
async fn many_operations_that_need_a_newer_table_share_its_refresh() {
    let cluster = FakeCluster::start(2, 4).await;
    let client = client_of(&cluster).await;
    join_all((0..20).map(|i| client.get(format!("warm-{i}")))).await;
    let before = cluster.count(|node| &node.fetches);
    for node in &cluster.nodes {
        node.state.set(Behaviour::Redirect(None));
    }
    let waiting = (0..500).map(|i| {
        let client = client.clone();
        tokio::spawn(async move { client.put(format!("key-{i}"), "value").await })
    });
    let waiting: Vec<_> = waiting.collect();
    let counted = || (cluster.count(|node| &node.ops), cluster.count(|node| &node.fetches) - before);
    wait_for("everybody to be refused twice", counted, |(ops, fetches)| *ops >= 1_020 && *fetches >= 1).await;
    let (refused, fetches) = counted();
    assert!(fetches * 10 <= refused, "{fetches} fetches for {refused} refusals");
    for node in &cluster.nodes {
        node.state.set(Behaviour::Serve);
    }
    for result in join_all(waiting).await {
        result.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_partition_without_leader_is_waited_for() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    cluster.set_table(6, |_| None);
    wait_for("the table", || client.table_version(), |version| *version == Version::new(6)).await;
    let error = client.with_timeout(Duration::from_millis(100)).get("k").await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.put("k", "1").await }
    });
    tokio::task::yield_now().await;
    cluster.set_table(7, |_| Some(1));
    waiting.await.unwrap().unwrap();
}

/// A merge, say, raises what a partition forgot, while whoever was told to come back waits.
#[tokio::test]
async fn a_write_that_was_only_ever_refused_was_said_to_be_maybe_applied() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    let state = &cluster.nodes[0].state;
    state.log_time.store(100, Ordering::SeqCst);
    state.set(Behaviour::Refuse(ErrorDetail::new(ErrorKind::Unavailable, "not now")));
    let refused = tokio::spawn(async move { client.increment("n", 1).await });
    wait_for("a refusal", || state.ops.load(Ordering::SeqCst), |ops| *ops > 0).await;
    state.set(Behaviour::Forgotten(Millis::new(50)));
    assert_eq!(refused.await.unwrap().unwrap().value, 1);
}

#[tokio::test]
async fn a_refused_write_is_stamped_anew_and_one_that_is_open_is_not() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    let state = &cluster.nodes[0].state;
    state.log_time.store(100, Ordering::SeqCst);
    state.set(Behaviour::Forgotten(Millis::new(50)));
    assert_eq!(client.increment("n", 1).await.unwrap().value, 1);
    assert_eq!(state.ops.load(Ordering::SeqCst), 2);
    // Applied, the answer lost, and then forgotten by the server: nobody can tell any more.
    let (fresh, waiting) = (client_of(&cluster).await, client.clone());
    state.set(Behaviour::Silent);
    let lost = tokio::spawn(async move { fresh.increment("n", 1).await });
    let kept = tokio::spawn(async move { waiting.get("n").await });
    wait_for("both to be under way", || state.ops.load(Ordering::SeqCst), |ops| *ops == 4).await;
    state.set(Behaviour::Forgotten(Millis::new(50)));
    let mut cluster = cluster;
    cluster.nodes[0].restart().await;
    let error = lost.await.unwrap().unwrap_err();
    assert!(error.outcome_unknown() && matches!(error, Error::MaybeApplied { .. }), "{error:?}");
    assert!(kept.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn a_refusal_for_good_ends_the_call_at_once() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    cluster.nodes[0].state.set(Behaviour::Refuse(ErrorDetail::new(ErrorKind::StaleVersion, "no")));
    let error = client.put("k", "1").await.unwrap_err();
    assert_eq!((error.kind(), cluster.count(|node| &node.ops)), (ErrorKind::StaleVersion, 1));
    let overloaded = ErrorDetail::new(ErrorKind::Overloaded, "full").with_retry_after_ms(200);
    cluster.nodes[0].state.set(Behaviour::Refuse(overloaded));
    let error = client.with_timeout(Duration::from_millis(700)).put("k", "1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let asked = cluster.count(|node| &node.ops) - 1;
    assert!((2..=4).contains(&asked), "push-back of 200 ms was not honoured: asked {asked} times in 700 ms");
}

/// A partition that changes hands refuses everybody for some milliseconds and says so: who waits must not be put off for
/// half a second by a budget that all of them spent together.
#[tokio::test]
async fn many_callers_that_are_asked_to_come_back_soon_do_so() {
    const CALLERS: usize = 20;
    let mut took = Vec::new();
    // A busy machine may be slow once, not always; by the budget alone three pauses take 750 ms at least.
    while took.len() < 5 && took.iter().all(|took| *took >= Duration::from_millis(600)) {
        let cluster = FakeCluster::start(1, 1).await;
        let client = client_of(&cluster).await;
        let moving = ErrorDetail::new(ErrorKind::Unavailable, "moving").with_retry_after_ms(1);
        cluster.nodes[0].state.set(Behaviour::Refuse(moving));
        let began = Instant::now();
        let calls = join_all((0..CALLERS).map(|caller| client.put(format!("k{caller}"), "1")));
        let fourth = async {
            wait_for("the fourth attempts", || cluster.count(|node| &node.ops), |ops| *ops >= 4 * CALLERS).await;
            took.push(began.elapsed());
            cluster.nodes[0].state.set(Behaviour::Serve);
        };
        let (results, ()) = tokio::join!(calls, fourth);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    assert!(took.iter().any(|took| *took < Duration::from_millis(600)), "{took:?}");
}

#[tokio::test]
async fn a_scan_merges_all_partitions_in_order_page_by_page() {
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
    // A prefix with a closed tag lives in one partition: one operation, not nine.
    client.put("{t}a", "1").await.unwrap();
    let before = cluster.count(|node| &node.ops);
    assert_eq!(client.scan("{t}").limit(10).page().await.unwrap().entries.len(), 1);
    assert_eq!(cluster.count(|node| &node.ops) - before, 1);
}

#[tokio::test]
async fn building_needs_one_good_endpoint_of_one_cluster() {
    let cluster = FakeCluster::start(1, 1).await;
    // Port 1 of loopback: nobody listens there.
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
async fn closing_ends_what_is_under_way_and_says_what_is_unknown() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    cluster.nodes[0].state.set(Behaviour::Silent);
    let (writer, reader) = (client.clone(), client.clone());
    let write = tokio::spawn(async move { writer.put("k", "2").await });
    let read = tokio::spawn(async move { reader.get("k").await });
    wait_for("both to be under way", || cluster.count(|node| &node.ops), |ops| *ops == 3).await;
    let began = Instant::now();
    client.close().await;
    assert!(write.await.unwrap().unwrap_err().outcome_unknown());
    assert_eq!(read.await.unwrap(), Err(Error::Closed));
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_endpoint_of_another_cluster_is_not_believed() {
    let mut cluster = FakeCluster::start(2, 1).await;
    let client = Client::builder([cluster.nodes[0].address.as_str()]).build().await.unwrap();
    client.put("k", "1").await.unwrap();
    // At the second node's address another cluster's node has come up; its table is newer and must not be taken.
    let other = FakeCluster::start_as(ClusterId::new(uuid::Uuid::from_u128(0xB2)), 1, 1).await;
    other.set_table(99, |_| None);
    let table = other.table(98, |_| Some(1));
    for node in &cluster.nodes {
        node.state.coordinators.lock().unwrap().push(other.nodes[0].address.clone());
    }
    cluster.set_table(6, |_| Some(1));
    wait_for("the new table", || client.table_version(), |version| *version == Version::new(6)).await;
    cluster.nodes[1].kill();
    cluster.nodes[0].state.hint.store(99, Ordering::SeqCst);
    client.put("k", "2").await.unwrap();
    wait_for("the stranger to be asked", || other.count(|node| &node.fetches), |fetches| *fetches > 0).await;
    client.put("k", "3").await.unwrap();
    assert!(client.table_version() < table.version, "took the table of another cluster");
}
