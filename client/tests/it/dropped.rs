//! What a client does when its table is dropped, against nodes that exist only in memory.

use crate::support::{Behaviour, FakeCluster};
use archon_client::{Client, Error, ErrorDetail, ErrorKind};
use archon_types::{TableId, Version};
use std::time::Duration;

/// Far more than anything here takes: whoever is told by the deadline only was not told.
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
    /// Every node knows that the table was dropped by this version.
    fn drop_table(&self, version: u64) {
        for node in &self.nodes {
            node.state.dropped.store(version, std::sync::atomic::Ordering::SeqCst);
            // Those who wait for what is newer.
            node.state.table.send_modify(|_| {});
        }
    }

    /// Another table goes by the name.
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
async fn an_operation_on_a_dropped_table_ends_as_not_found_and_so_do_all_later_ones() {
    let cluster = FakeCluster::start(1, 4).await;
    let client = client_of(&cluster).await;
    client.put("k", "v").await.unwrap();
    cluster.nodes[0].state.set(Behaviour::Refuse(ErrorDetail::new(ErrorKind::NotFound, "it was dropped")));
    let error = client.get("k").await.unwrap_err();
    assert!(not_found(&error), "{error}");
    // Once told it asks nobody.
    let asked = cluster.count(|node| &node.ops);
    assert!(not_found(&client.put("k", "w").await.unwrap_err()));
    assert!(not_found(&client.scan("").limit(10).page().await.unwrap_err()));
    assert_eq!(cluster.count(|node| &node.ops), asked);
}

#[tokio::test]
async fn whoever_waits_for_a_leader_of_a_dropped_table_is_told_before_the_deadline() {
    let cluster = FakeCluster::start(1, 4).await;
    let client = client_of(&cluster).await;
    cluster.set_table(6, |_| None);
    let until = std::time::Instant::now() + DEADLINE / 2;
    while client.table_version() < Version::new(6) {
        assert!(std::time::Instant::now() < until, "the newer table does not come: {}", client.table_version());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // A node that knows less than the client says nothing about it.
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
async fn a_later_table_of_the_name_is_another_one_and_has_to_be_opened() {
    let cluster = FakeCluster::start(1, 4).await;
    let client = client_of(&cluster).await;
    client.put("k", "v").await.unwrap();
    let before = cluster.nodes[0].state.store.lock().unwrap().partitions[b"k".as_ref()];
    cluster.create_again(9);
    // The handle is on the former one, whatever goes by the name.
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
