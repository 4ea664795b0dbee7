//! A client whose partition ends because it was merged into its left neighbour, or which loses keys by a split,
//! against in-memory nodes.

use crate::support::{Behaviour, FakeCluster};
use archon_client::{Client, Error, ErrorDetail, ErrorKind};
use archon_testkit::wait_for_state;
use archon_types::{KeyRange, Keys, TableDelta, Version};
use bytes::Bytes;
use std::time::Duration;

/// Time-out far above the duration of any call here: a call that waits for it did not learn of the change.
const DEADLINE: Duration = Duration::from_secs(60);

impl FakeCluster {
    /// Returns a table by ranges: two partitions that meet at `m`, or the one that they were merged into.
    fn ranges(&self, version: u64, merged: bool) -> TableDelta {
        let mut delta = self.table(version, |_| Some(1));
        delta.table.keys = Keys::Range { next: 2, limits: archon_types::RangeLimits::NONE };
        let at = Bytes::from_static(b"m");
        delta.partitions[0].range = KeyRange { begin: Bytes::new(), end: (!merged).then(|| at.clone()) };
        delta.partitions[1].range = KeyRange { begin: at, end: None };
        delta.partitions.truncate(if merged { 1 } else { 2 });
        delta
    }

    fn push(&self, delta: &TableDelta) {
        self.nodes.iter().for_each(|node| drop(node.state.table.send_replace(delta.clone())));
    }

    fn behaviour(&self, behaviour: Behaviour) {
        self.nodes[0].state.set(behaviour);
    }
}

async fn two_partitions() -> (FakeCluster, Client) {
    let cluster = FakeCluster::start(1, 2).await;
    cluster.push(&cluster.ranges(6, false));
    let client = Client::builder(cluster.addresses()).timeout(DEADLINE).build().await.unwrap();
    assert_eq!(client.table_version(), Version::new(6));
    (cluster, client)
}

fn busy() -> Behaviour {
    Behaviour::Refuse(ErrorDetail::new(ErrorKind::Unavailable, "it is being merged").with_retry_after_ms(5))
}

#[tokio::test]
async fn rejected_operations_continue_at_the_new_partition() {
    let (cluster, client) = two_partitions().await;
    client.put("z", "before").await.unwrap();
    cluster.behaviour(busy());
    let run = |client: Client| async move {
        (client.put("z", "after").await, client.scan("").limit(10).page().await.map(|page| page.entries.len()))
    };
    let begun = tokio::spawn(run(client.clone()));
    let asked = cluster.count(|node| &node.ops);
    wait_for_state("an attempt", || cluster.count(|node| &node.ops), |ops| *ops > asked).await;
    cluster.push(&cluster.ranges(9, true));
    wait_for_state("the newer table", || client.table_version(), |version| *version == Version::new(9)).await;
    cluster.behaviour(Behaviour::Serve);
    let (put, scanned) = begun.await.unwrap();
    assert!(put.is_ok(), "{put:?}");
    assert_eq!(scanned, Ok(1));
    let store = cluster.nodes[0].state.store.lock().unwrap();
    assert_eq!(store.partitions[&Bytes::from_static(b"z")].index, 0);
    assert_eq!(store.ids.last().map(|id| id.number), Some(1), "it has another name there");
}

#[tokio::test]
async fn open_write_of_ended_partition_is_not_sent_again() {
    let (mut cluster, client) = two_partitions().await;
    cluster.behaviour(Behaviour::Silent);
    let begun = tokio::spawn({
        let client = client.clone();
        async move { client.put("z", "open").await }
    });
    wait_for_state("an attempt", || cluster.count(|node| &node.ops), |ops| *ops > 0).await;
    cluster.push(&cluster.ranges(9, true));
    wait_for_state("the newer table", || client.table_version(), |version| *version == Version::new(9)).await;
    // If the client sent it again, it would be applied.
    cluster.behaviour(Behaviour::Serve);
    cluster.nodes[0].restart().await;
    let put = begun.await.unwrap();
    assert!(matches!(put, Err(Error::MaybeApplied { .. })), "{put:?}");
    assert!(cluster.nodes[0].state.store.lock().unwrap().ids.is_empty());
    assert!(client.put("z", "new").await.is_ok());
}

/// A new name while the partition may still apply the write under the first one would apply it twice.
#[tokio::test]
async fn write_keeps_its_name_until_partition_answers_moved() {
    let cluster = FakeCluster::start(1, 2).await;
    cluster.push(&cluster.ranges(6, true));
    let client = Client::builder(cluster.addresses()).timeout(DEADLINE).build().await.unwrap();
    assert_eq!(client.table_version(), Version::new(6));
    cluster.behaviour(busy());
    let begun = tokio::spawn({
        let client = client.clone();
        async move { (client.put("z", "value").await, client.get("z").await) }
    });
    let asked = || cluster.nodes[0].state.asked.lock().unwrap().clone();
    wait_for_state("an attempt", &asked, |asked| !asked.is_empty()).await;
    cluster.push(&cluster.ranges(9, false));
    wait_for_state("the newer table", || client.table_version(), |version| *version == Version::new(9)).await;
    let before = asked().len();
    wait_for_state("attempts by the newer table", &asked, |asked| asked.len() > before + 2).await;
    assert!(asked().iter().all(|asked| *asked == (0, Some(1))), "{:?}", asked());
    cluster.behaviour(Behaviour::Refuse(ErrorDetail::new(ErrorKind::Moved, "it is another partition's")));
    wait_for_state("an attempt elsewhere", &asked, |asked| asked.iter().any(|(partition, _)| *partition == 1)).await;
    cluster.behaviour(Behaviour::Serve);
    let (put, got) = begun.await.unwrap();
    assert!(put.is_ok() && got.as_ref().is_ok_and(Option::is_some), "{put:?} {got:?}");
    let store = cluster.nodes[0].state.store.lock().unwrap();
    assert_eq!(store.partitions[&Bytes::from_static(b"z")].index, 1);
}

/// The partition states how far it came.
#[tokio::test]
async fn scan_of_range_continues_beyond_expired_rows() {
    let (cluster, client) = two_partitions().await;
    cluster.push(&cluster.ranges(9, true));
    wait_for_state("the newer table", || client.table_version(), |version| *version == Version::new(9)).await;
    for number in 0..40 {
        client.put(format!("{number:02}"), "value").await.unwrap();
    }
    let expired = (0..40).filter(|number| *number != 20).map(|number| format!("{number:02}").into());
    cluster.nodes[0].state.store.lock().unwrap().expired.extend(expired);
    for page in [client.scan("").limit(2), client.scan("").limit(2).reverse()] {
        let page = page.page().await.unwrap();
        assert_eq!(page.entries.iter().map(|entry| &entry.key[..]).collect::<Vec<_>>(), [b"20"]);
        assert!(!page.more);
    }
}
