//! What a client does when a partition ends because its left neighbour got its keys, or gives keys away to one that is split off,
//! against nodes that exist only in memory.

use crate::support::{Behaviour, FakeCluster, wait_for};
use archon_client::{Client, Error, ErrorDetail, ErrorKind};
use archon_types::{KeyRange, Keys, TableDelta, Version};
use bytes::Bytes;
use std::time::Duration;

/// Far more than anything here takes: whoever waits for it was not told.
const DEADLINE: Duration = Duration::from_secs(60);

impl FakeCluster {
    /// A table by ranges: two partitions that meet at `m`, or one that was two.
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
async fn what_was_refused_for_certain_goes_on_where_its_key_is() {
    let (cluster, client) = two_partitions().await;
    client.put("z", "before").await.unwrap();
    cluster.behaviour(busy());
    let run = |client: Client| async move {
        (client.put("z", "after").await, client.scan("").limit(10).page().await.map(|page| page.entries.len()))
    };
    let begun = tokio::spawn(run(client.clone()));
    let asked = cluster.count(|node| &node.ops);
    wait_for("an attempt", || cluster.count(|node| &node.ops), |ops| *ops > asked).await;
    cluster.push(&cluster.ranges(9, true));
    wait_for("the newer table", || client.table_version(), |version| *version == Version::new(9)).await;
    cluster.behaviour(Behaviour::Serve);
    let (put, scanned) = begun.await.unwrap();
    assert!(put.is_ok(), "{put:?}");
    assert_eq!(scanned, Ok(1));
    let store = cluster.nodes[0].state.store.lock().unwrap();
    assert_eq!(store.partitions[&Bytes::from_static(b"z")].index, 0);
    assert_eq!(store.ids.last().map(|id| id.number), Some(1), "it has another name there");
}

#[tokio::test]
async fn a_write_that_is_open_when_its_partition_ends_is_not_sent_again() {
    let (mut cluster, client) = two_partitions().await;
    cluster.behaviour(Behaviour::Silent);
    let begun = tokio::spawn({
        let client = client.clone();
        async move { client.put("z", "open").await }
    });
    wait_for("an attempt", || cluster.count(|node| &node.ops), |ops| *ops > 0).await;
    cluster.push(&cluster.ranges(9, true));
    wait_for("the newer table", || client.table_version(), |version| *version == Version::new(9)).await;
    // Were it sent again, it would be done.
    cluster.behaviour(Behaviour::Serve);
    cluster.nodes[0].restart().await;
    let put = begun.await.unwrap();
    assert!(matches!(put, Err(Error::MaybeApplied { .. })), "{put:?}");
    assert!(cluster.nodes[0].state.store.lock().unwrap().ids.is_empty());
    assert!(client.put("z", "new").await.is_ok());
}

/// Whoever gave a write another name while its partition may still do it under the first one had it done twice.
#[tokio::test]
async fn a_write_took_another_name_before_its_partition_said_that_the_key_had_moved() {
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
    wait_for("an attempt", &asked, |asked| !asked.is_empty()).await;
    cluster.push(&cluster.ranges(9, false));
    wait_for("the newer table", || client.table_version(), |version| *version == Version::new(9)).await;
    let before = asked().len();
    wait_for("attempts by the newer table", &asked, |asked| asked.len() > before + 2).await;
    assert!(asked().iter().all(|asked| *asked == (0, Some(1))), "{:?}", asked());
    cluster.behaviour(Behaviour::Refuse(ErrorDetail::new(ErrorKind::Moved, "it is another partition's")));
    wait_for("an attempt elsewhere", &asked, |asked| asked.iter().any(|(partition, _)| *partition == 1)).await;
    cluster.behaviour(Behaviour::Serve);
    let (put, got) = begun.await.unwrap();
    assert!(put.is_ok() && got.as_ref().is_ok_and(Option::is_some), "{put:?} {got:?}");
    let store = cluster.nodes[0].state.store.lock().unwrap();
    assert_eq!(store.partitions[&Bytes::from_static(b"z")].index, 1);
}
