//! Writes under names that the caller chose, against in-memory nodes.

use crate::support::FakeCluster;
use archon_client::{Answer, Client, Error, ErrorKind, Op, WriteName};
use futures::future::join_all;
use std::time::Duration;

const CLIENT: &str = "6fa459ea-ee8a-4ca4-894e-db77e160355e";
const OTHER: &str = "16fd2706-8baf-433b-82eb-8c7fada847da";

async fn client_of(cluster: &FakeCluster) -> Client {
    Client::builder(cluster.addresses()).timeout(Duration::from_secs(60)).build().await.unwrap()
}

fn name(client: &str, number: u64) -> WriteName {
    format!("{client}/{number}").parse().unwrap()
}

fn increment() -> Op {
    Op::Increment { key: "visits".into(), by: 1 }
}

fn sum(answer: &Answer) -> i64 {
    let Answer::Counter { value, .. } = answer else { panic!("{answer:?}") };
    *value
}

#[tokio::test]
async fn named_write_has_one_effect_from_several_clients() {
    let cluster = FakeCluster::start(1, 1).await;
    cluster.nodes[0].state.log_time.store(700, std::sync::atomic::Ordering::SeqCst);
    let [first, second] = [client_of(&cluster).await, client_of(&cluster).await];
    let (found, stamp) = first.get_with_stamp("visits").await.unwrap();
    assert_eq!((found, stamp), (None, 700));
    let written = first.write_named(increment(), name(CLIENT, 1).stamped(stamp)).await.unwrap();
    for repeated in [name(CLIENT, 1).stamped(stamp), name(CLIENT, 1).stamped(0), name(CLIENT, 1)] {
        assert_eq!(second.write_named(increment(), repeated).await.unwrap(), written);
    }
    assert_eq!(sum(&second.write_named(increment(), name(CLIENT, 2)).await.unwrap()), 2);
    let read = second.write_named(Op::Get { key: "visits".into() }, name(CLIENT, 3)).await.unwrap_err();
    assert!(matches!(read.error, Error::InvalidArgument { .. }), "{read}");
}

/// One message of a stream carries the operations of one client.
#[tokio::test]
async fn writes_of_several_names_share_a_stream() {
    let cluster = FakeCluster::start(1, 1).await;
    let client = client_of(&cluster).await;
    let writes = (1..=20).flat_map(|number| [name(CLIENT, number), name(OTHER, number)]);
    let named = join_all(writes.map(|name| client.write_named(increment(), name)));
    let own = join_all((0..20).map(|_| client.increment("visits", 1)));
    let (named, own) = tokio::join!(named, own);
    let mut sums: Vec<i64> = named.iter().map(|answer| sum(answer.as_ref().unwrap())).collect();
    sums.extend(own.iter().map(|counter| counter.as_ref().unwrap().value));
    sums.sort_unstable();
    assert_eq!(sums, (1..=60).collect::<Vec<i64>>());
    let wrong = "17".parse::<WriteName>().unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
}
