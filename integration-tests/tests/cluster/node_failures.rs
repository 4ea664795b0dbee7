//! Nodes die, pause and come back. With one copy, a dead node means unavailable partitions, and nothing worse.

use crate::EXE;
use archon_client::{Client, Role};
use archon_integration_tests::{Cluster, Options, Process, ProcessExt, Rows};
use archon_proto::v1::kv_client::KvClient;
use archon_proto::v1::{ClusterRef, GetRequest};
use archon_security::ExpectedPeer;
use archon_testkit::{check, wait_for};
use std::time::Duration;
use tonic::transport::Endpoint;

async fn client(cluster: &Cluster, timeout: Duration) -> Client {
    cluster.client().timeout(timeout).build().await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_node_fails_and_returns_with_its_data() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let client = client(&cluster, Duration::from_secs(30)).await;
    let written = Rows::written(&client, 200).await;
    cluster.take_node("athens").kill();
    let failed = cluster.wait_node("athens", "failed");
    cluster.wait_partitions("three partitions to be Unavailable", |rows| {
        rows.iter().filter(|row| row["status"] == "unavailable").count() == 3
    });
    cluster.start_node("athens");
    let online = cluster.wait_online();
    println!("failed after {failed:?}, Online again {online:?} after its restart");
    written.assert_there(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_stopped_by_sigterm_releases_and_returns_at_once() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let client = client(&cluster, Duration::from_secs(30)).await;
    let written = Rows::written(&client, 100).await;
    let status = cluster.take_node("byzantium").terminate(Duration::from_secs(60));
    assert!(status.success(), "{status}");
    cluster.wait_node("byzantium", "failed");
    cluster.start_node("byzantium");
    cluster.wait_online();
    written.assert_there(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn woken_node_does_not_answer_from_an_expired_lease() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    let client = client(&cluster, Duration::from_secs(30)).await;
    let key = cluster.key_led_by("athens");
    client.put(key.clone().into_bytes(), b"before".to_vec()).await.expect("a put");
    let address = cluster.node_address("athens");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let transport = cluster.transport(Role::Client);
    let mut node = KvClient::new(transport.channel(&endpoint, address, ExpectedPeer::Servers, Duration::from_secs(5)));
    let status = cluster.json(&["status"]).expect("status");
    let id: uuid::Uuid = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).expect("a cluster id");
    let request = || GetRequest {
        cluster: Some(ClusterRef { cluster_id: id.as_bytes().to_vec().into() }),
        table: String::new(),
        key: key.clone().into_bytes().into(),
    };
    let value = node.get(request()).await.expect("it answers under its lease").into_inner().value;
    assert_eq!(value.map(|value| value.value.to_vec()), Some(b"before".to_vec()));

    cluster.node("athens").pause();
    cluster.wait_node("athens", "failed");
    // No coordinator can grant a new lease, so the answers after waking rest on the old one.
    for index in 0..3 {
        cluster.take_coordinator(index).kill();
    }
    // This read waits in the paused node's socket.
    let waiting = request();
    let asked = tokio::spawn(async move { node.get(waiting).await.map(|answer| answer.into_inner().value) });
    cluster.node("athens").resume();
    let answer = asked.await.expect("the reader does not panic");
    assert!(answer.is_err(), "answered {answer:?} from an expired lease");
    println!("refused: {}", answer.unwrap_err());

    for index in 0..3 {
        cluster.start_coordinator(index);
    }
    cluster.wait_node("athens", "alive");
    cluster.wait_online();
    let found = client.get(key.into_bytes()).await.expect("served in the next leadership");
    assert_eq!(found.map(|found| found.value.to_vec()), Some(b"before".to_vec()));
    let list = cluster.json(&["partition", "list"]).expect("partition list");
    let led = list.as_array().into_iter().flatten().filter(|row| row["leader"] == "athens");
    assert!(led.clone().count() == 3 && led.clone().all(|row| row["epoch"].as_u64() >= Some(2)), "anew: {list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_coordinators_stops_serving_at_lease_end() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    let node = cluster.node_address("athens").to_owned();
    let client = client(&cluster, Duration::from_millis(500)).await;
    let written = Rows::written(&client, 20).await;
    let found = cluster.archon_at(&node, &["kv", "get", "k/1"]);
    assert_eq!((found.code, found.stdout.trim()), (0, "v/1"), "{}", found.stderr);
    for index in 0..3 {
        cluster.take_coordinator(index).kill();
    }
    tokio::task::block_in_place(|| {
        wait_for("every read to be refused", Duration::from_secs(60), || {
            let ran = cluster.archon_at(&node, &["kv", "get", "k/1", "--timeout", "500ms"]);
            check(ran.code != 0 && ran.stdout.is_empty(), || format!("{} {}", ran.stdout, ran.stderr))
        });
    });
    for index in 0..3 {
        cluster.start_coordinator(index);
    }
    cluster.wait_online();
    let patient = self::client(&cluster, Duration::from_secs(30)).await;
    written.assert_there(&patient).await;
}

#[test]
fn nodes_stopped_together_release_partitions_and_leave() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, partitions: 30, ..Options::default() });
    let names = ["athens", "byzantium", "cyrene"];
    let mut nodes: Vec<_> = names.iter().map(|name| cluster.take_node(name)).collect();
    nodes.iter().for_each(Process::ask_to_end);
    for node in &mut nodes {
        let status = node.wait_exit(Duration::from_secs(60));
        let log = node.log();
        assert!(status.success(), "{status}: {log}");
        // A coordinator that grants a leaving node the partitions it just released would keep it until its time-out.
        assert!(log.contains("left the cluster cleanly"), "{}: {}", node.name(), node.log_tail(10));
    }
    for name in names {
        cluster.wait_node(name, "failed");
        cluster.start_node(name);
    }
    println!("Online again after {:?}", cluster.wait_online());
}
