//! Owners of partitions in a cache without all rows, against in-memory nodes.

use crate::support::FakeCluster;
use archon_client::{Client, ErrorKind, Routes};
use archon_testkit::wait_for_state;
use archon_types::{TableDelta, Version};

/// Returns a key of a partition.
fn key_of(routes: &Routes, index: u32) -> String {
    let mut keys = (0..1_000).map(|number| number.to_string());
    keys.find(|key| routes.partition_of(key).index == index).unwrap()
}

#[tokio::test]
async fn owner_that_has_not_arrived_is_not_reported_as_none() {
    let cluster = FakeCluster::start(1, 2).await;
    let push = |delta: TableDelta| drop(cluster.nodes[0].state.table.send_replace(delta));
    let mut without_row = cluster.table(6, |_| None);
    without_row.partitions.remove(0);
    push(without_row);
    let routes = Client::builder(cluster.addresses()).routes("default").await.unwrap();
    let [first, second] = [0, 1].map(|index| key_of(&routes, index));
    let mut watch = routes.watch();
    let is_unknown = |watch: &mut archon_client::OwnersWatch| {
        let errors = [routes.whereabouts(&first).map(drop), watch.read_all().map(drop)].map(Result::unwrap_err);
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{errors:?}");
        assert!(errors[0].to_string().contains("partition 0 of default is not known yet"), "{}", errors[0]);
        assert_eq!(routes.whereabouts(&second).unwrap().owner, None);
    };
    is_unknown(&mut watch);
    let read = watch.read_changes().unwrap();
    assert_eq!(read.partitions.iter().map(|row| row.partition).collect::<Vec<_>>(), [1]);

    // The row names a member that is not known.
    push(cluster.table(7, |index| (index == 0).then_some(2)));
    wait_for_state("the row", || routes.map().version, |version| *version == Version::new(7)).await;
    is_unknown(&mut watch);

    push(cluster.table(8, |index| (index == 0).then_some(1)));
    wait_for_state("the owner", || routes.map().version, |version| *version == Version::new(8)).await;
    let owner = routes.whereabouts(&first).unwrap().owner.unwrap();
    assert_eq!((owner.participant.as_str(), owner.serves), ("node-1", true));
    let read = watch.read_changes().unwrap();
    assert_eq!(read.partitions.iter().filter(|row| row.owner.is_some()).count(), 1);
    assert_eq!(watch.read_all().unwrap().partitions.len(), 2);
}
