//! A client whose table is dropped, against in-memory nodes.

use crate::support::{Behaviour, FakeCluster};
use archon_client::{Client, Error, ErrorDetail, ErrorKind};
use archon_types::{TableId, Version};
use std::time::Duration;

/// Time-out far above the duration of any call here: a call that ends only by it did not learn of the drop.
const DEADLINE: Duration = Duration::from_secs(60);

async fn client_of(cluster: &FakeCluster) -> Client {
    Client::builder(cluster.addresses()).timeout(DEADLINE).build().await.unwrap()
}

fn not_found(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
        && !error.is_retryable()
        && error.to_string().contains("\"default\" was dropped")
}

impl FakeCluster {
    /// Tells every node that the table was dropped by this version.
    fn drop_table(&self, version: u64) {
        for node in &self.nodes {
            node.state.dropped.store(version, std::sync::atomic::Ordering::SeqCst);
            // Wakes the long polls.
            node.state.table.send_modify(|_| {});
        }
    }

    /// Creates another table with the same name.
    fn create_again(&self, version: u64) {
        let mut delta = self.table(version, |_| Some(1));
        delta.table.id = TableId::new(2);
        delta.partitions.iter_mut().for_each(|row| row.id.table = TableId::new(2));
        self.drop_table(0);
        for node in &self.nodes {
            node.state.table.send_replace(delta.clone());
        }
    }
}

#[tokio::test]
async fn operations_on_dropped_table_fail_as_not_found() {
    let cluster = FakeCluster::start(1, 4).await;
    let client = client_of(&cluster).await;
    client.put("k", "v").await.unwrap();
    cluster.nodes[0].state.set(Behaviour::Refuse(ErrorDetail::new(ErrorKind::NotFound, "it was dropped")));
    let error = client.get("k").await.unwrap_err();
    assert!(not_found(&error), "{error}");
    // Afterwards the client sends no requests.
    let asked = cluster.count(|node| &node.ops);
    assert!(not_found(&client.put("k", "w").await.unwrap_err()));
    assert!(not_found(&client.scan("").limit(10).page().await.unwrap_err()));
    assert_eq!(cluster.count(|node| &node.ops), asked);
}

#[tokio::test]
async fn drop_ends_the_wait_for_a_leader_before_the_deadline() {
    let cluster = FakeCluster::start(1, 4).await;
    let client = client_of(&cluster).await;
    cluster.set_table(6, |_| None);
    let until = std::time::Instant::now() + DEADLINE / 2;
    while client.table_version() < Version::new(6) {
        assert!(std::time::Instant::now() < until, "the newer table does not come: {}", client.table_version());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // An answer of a node with an older version proves nothing.
    cluster.drop_table(5);
    let waits = tokio::spawn({
        let client = client.clone();
        async move { client.put("k", "v").await }
    });
    let fetches = cluster.count(|node| &node.fetches);
    while cluster.count(|node| &node.fetches) < fetches + 3 {
        assert!(!waits.is_finished() && std::time::Instant::now() < until, "it does not ask on");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cluster.drop_table(7);
    let told = tokio::time::timeout(DEADLINE / 2, waits).await.expect("told before the deadline").unwrap();
    assert!(not_found(told.as_ref().unwrap_err()), "{told:?}");
}

#[tokio::test]
async fn new_table_of_same_name_needs_a_new_handle() {
    let cluster = FakeCluster::start(1, 4).await;
    let client = client_of(&cluster).await;
    client.put("k", "v").await.unwrap();
    let before = cluster.nodes[0].state.store.lock().unwrap().partitions[b"k".as_ref()];
    cluster.create_again(9);
    // The handle refers to the former table, whatever has the name.
    let until = std::time::Instant::now() + DEADLINE / 2;
    let error = loop {
        match client.put("k", "old").await {
            Err(error) => break error,
            Ok(_) => assert!(std::time::Instant::now() < until, "it is not told"),
        }
    };
    assert!(not_found(&error), "{error}");
    let again = client.table("default").await.unwrap();
    again.put("k", "new").await.unwrap();
    let after = cluster.nodes[0].state.store.lock().unwrap().partitions[b"k".as_ref()];
    assert_eq!((before.table, after.table), (TableId::new(1), TableId::new(2)));
    assert!(not_found(&client.get("k").await.unwrap_err()), "the former handle stays what it was");
}
