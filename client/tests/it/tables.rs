//! Partition tables of the client against in-memory nodes: redirects, refreshes, and order of versions.

use crate::exchange::{TIMEOUT, client_of};
use crate::support::{Behaviour, FakeCluster};
use archon_client::{Client, ErrorKind};
use archon_testkit::wait_for_state;
use archon_types::Version;
use futures::future::join_all;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test]
async fn redirect_costs_one_hop_and_new_table_none() {
    let cluster = FakeCluster::start(2, 1).await;
    let (old, new) = (&cluster.nodes[0], &cluster.nodes[1]);
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    assert_eq!(old.state.ops.load(Ordering::SeqCst), 1);
    // The partition has moved; the client has not learnt of it.
    old.state.set(Behaviour::Redirect(Some(new.address.clone())));
    let began = Instant::now();
    client.put("k", "2").await.unwrap();
    assert_eq!(old.state.ops.load(Ordering::SeqCst), 2);
    assert_eq!(new.state.ops.load(Ordering::SeqCst), 1);
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
    cluster.set_table(6, |_| Some(2));
    wait_for_state("the new table", || client.table_version(), |version| *version == Version::new(6)).await;
    client.put("k", "3").await.unwrap();
    assert_eq!(old.state.ops.load(Ordering::SeqCst), 2);
    assert_eq!(new.state.ops.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn circular_redirects_are_followed_with_pauses() {
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
async fn older_table_never_replaces_newer_one() {
    let cluster = FakeCluster::start(2, 1).await;
    let client = client_of(&cluster).await;
    client.put("k", "1").await.unwrap();
    assert_eq!(client.table_version(), Version::new(5));
    // A node fell behind: it hints at a newer version, and serves an older table in which another node leads.
    cluster.set_table(3, |_| Some(2));
    cluster.nodes.iter().for_each(|node| node.state.whole.store(true, Ordering::SeqCst));
    let before = cluster.count(|node| &node.fetches);
    cluster.nodes[0].state.hint.store(9, Ordering::SeqCst);
    client.put("k", "2").await.unwrap();
    wait_for_state("a refresh", || cluster.count(|node| &node.fetches), |fetches| *fetches > before).await;
    client.put("k", "3").await.unwrap();
    assert_eq!(client.table_version(), Version::new(5));
    assert_eq!(cluster.nodes[1].state.ops.load(Ordering::SeqCst), 0);
    // The hint was followed once; it is not followed again.
    let settled = cluster.count(|node| &node.fetches);
    for _ in 0..50 {
        client.put("k", "4").await.unwrap();
    }
    assert!(cluster.count(|node| &node.fetches) <= settled + 2, "the hint is followed again and again");
}

#[tokio::test]
async fn table_in_pieces_is_fetched_again_if_one_is_missing() {
    let cluster = FakeCluster::start(2, 16_384).await;
    let one = Client::builder(vec![cluster.addresses()[0].clone()]).build().await.unwrap();
    let fetches = || cluster.count(|node| &node.fetches);
    assert!(fetches() >= 2, "{} requests for the largest table", fetches());
    // Keys of partitions in every piece.
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
async fn operations_that_need_a_newer_table_share_one_refresh() {
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
    wait_for_state("everybody to be refused twice", counted, |(ops, fetches)| *ops >= 1_020 && *fetches >= 1).await;
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
async fn operation_waits_for_partition_without_leader() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    cluster.set_table(6, |_| None);
    wait_for_state("the table", || client.table_version(), |version| *version == Version::new(6)).await;
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
