//! Coordinators restored twice from one directory: tables of two generations with the same number.

use crate::support::{Behaviour, FakeCluster};
use archon_client::Client;
use archon_documents::TableOwners;
use archon_testkit::wait_for_state;
use archon_types::{GenerationKey, NUMBERS_PER_GENERATION, Version};
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

const GIVEN_UP: u64 = NUMBERS_PER_GENERATION + 900;
const CONTINUED: u64 = NUMBERS_PER_GENERATION + 5;

fn key(number: u128) -> GenerationKey {
    GenerationKey::new(Uuid::from_u128(number))
}

/// Node 1 leads all partitions in the second generation, which is abandoned later; node 2 is listed as a coordinator.
async fn start() -> (FakeCluster, Client) {
    let cluster = FakeCluster::start(2, 1).await;
    cluster.set_table(GIVEN_UP, |_| Some(1));
    for node in &cluster.nodes {
        *node.state.generation_key.lock().unwrap() = key(1);
        *node.state.coordinators.lock().unwrap() = vec![cluster.nodes[1].address.clone()];
    }
    let client = Client::builder(cluster.addresses()).timeout(Duration::from_secs(20)).build().await.unwrap();
    client.put("k", "1").await.unwrap();
    assert_eq!(client.table_version(), Version::new(GIVEN_UP));
    (cluster, client)
}

/// Moves a node to another second generation, in which node 2 leads.
fn live_in_another(cluster: &FakeCluster, node: usize, version: u64) {
    let state = &cluster.nodes[node].state;
    *state.generation_key.lock().unwrap() = key(2);
    state.table.send_replace(cluster.table(version, |_| Some(2)));
}

/// Hints at a version that no node has, so that the client asks all of them, `node` included.
async fn asked_for_news(cluster: &FakeCluster, client: &Client, node: usize) {
    let fetches = || cluster.nodes[node].state.fetches.load(Ordering::SeqCst);
    let before = fetches();
    cluster.nodes.iter().for_each(|node| node.state.hint.store(GIVEN_UP + 100, Ordering::SeqCst));
    client.put("k", "3").await.unwrap();
    wait_for_state("a fetch", fetches, |fetches| *fetches > before).await;
    client.put("k", "4").await.unwrap();
}

#[tokio::test]
async fn client_of_abandoned_generation_adopts_the_valid_one() {
    let (cluster, client) = start().await;
    live_in_another(&cluster, 1, CONTINUED);
    cluster.nodes[0].state.set(Behaviour::Redirect(None));
    client.put("k", "2").await.unwrap();
    assert_eq!(client.table_version(), Version::new(CONTINUED));
    // The node of the other generation still sends its table.
    asked_for_news(&cluster, &client, 0).await;
    assert_eq!(client.table_version(), Version::new(CONTINUED));
    client.close().await;
}

/// The watch compared versions of two histories: it missed rows that are older than those it had read.
#[tokio::test]
async fn watch_lists_all_owners_of_another_generation() {
    let (cluster, client) = start().await;
    let mut watch = client.routes("default").await.unwrap().watch();
    let owner = |read: &TableOwners| read.partitions[0].owner.as_ref().map(|owner| owner.participant.clone());
    let read = watch.read_changes().unwrap();
    assert_eq!((read.complete, owner(&read).as_deref()), (true, Some("node-1")));
    live_in_another(&cluster, 1, GIVEN_UP + 50);
    cluster.nodes[1].state.table.send_modify(|table| table.partitions[0].version = Version::new(CONTINUED));
    cluster.nodes[0].state.set(Behaviour::Redirect(None));
    client.put("k", "2").await.unwrap();
    assert_eq!(client.table_version(), Version::new(GIVEN_UP + 50));
    let read = watch.read_changes().expect("other owners");
    assert_eq!((read.complete, owner(&read).as_deref()), (true, Some("node-2")));
    assert_eq!(watch.read_changes(), None);
    client.close().await;
}

#[tokio::test]
async fn node_alone_does_not_decide_between_generations() {
    let (cluster, client) = start().await;
    live_in_another(&cluster, 0, GIVEN_UP + 50);
    asked_for_news(&cluster, &client, 0).await;
    assert_eq!(client.table_version(), Version::new(GIVEN_UP));
    assert_eq!(cluster.nodes[1].state.ops.load(Ordering::SeqCst), 0, "who leads in the other one was not asked");
    client.close().await;
}
