//! Any node answers: a node that does not lead a key's partition forwards the operation (PROTOCOL rule 32).

use crate::EXE;
use archon_client::{Client, Role};
use archon_integration_tests::options::LONG_LEASES;
use archon_integration_tests::{Cluster, Options, Scene, WorkloadOptions};
use archon_proto::v1::kv_client::KvClient;
use archon_proto::v1::{ClusterRef, GetRequest, IncrementRequest, PutRequest};
use archon_testkit::{check, wait_for};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// Longer than a lease and the failure time-out together.
const LONG: Duration = Duration::from_secs(4);

fn cluster_ref(cluster: &Cluster) -> Option<ClusterRef> {
    let status = cluster.json(&["status"]).expect("status");
    let id: uuid::Uuid = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).expect("a cluster id");
    Some(ClusterRef { cluster_id: id.as_bytes().to_vec().into() })
}

/// Returns a counter of a node.
async fn counted(cluster: &Cluster, node: &str, name: &str) -> u64 {
    let admin = cluster.admin(Duration::from_secs(10));
    admin.node_stats(cluster.node_address(node)).await.expect("the node says what it counts").get(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_answers_every_key_by_plain_call() {
    // As a client in another language calls it, without the library. It does not retry when a lease lapses.
    let cluster =
        Cluster::start(EXE, &Options { coordinators: 1, tls: false, timing: Some(LONG_LEASES), ..Options::default() });
    let id = cluster_ref(&cluster);
    let mut nodes = BTreeMap::new();
    for name in NODES {
        let address = format!("http://{}", cluster.node_address(name));
        nodes.insert(name, KvClient::connect(address).await.expect("the node listens"));
    }
    let keys: Vec<String> = (0..60).map(|number| format!("key-{number}")).collect();
    for (number, key) in keys.iter().enumerate() {
        let (key, value) = (key.clone().into_bytes().into(), key.clone().into_bytes().into());
        let node = nodes.get_mut(NODES[number % 3]).expect("above");
        let put = PutRequest { cluster: id.clone(), key, value, ..Default::default() };
        node.put(put).await.unwrap_or_else(|status| panic!("{}: {status}", NODES[number % 3]));
    }
    for (name, node) in &mut nodes {
        for key in &keys {
            let (key, n) = (key.clone().into_bytes(), format!("n-{key}").into_bytes());
            let get = GetRequest { cluster: id.clone(), key: key.clone().into(), ..Default::default() };
            let found = node.get(get).await.unwrap_or_else(|status| panic!("{name}: {status}")).into_inner();
            assert_eq!(found.value.map(|value| value.value.to_vec()), Some(key));
            let add = IncrementRequest { cluster: id.clone(), key: n.into(), by: 1, ..Default::default() };
            node.increment(add).await.unwrap_or_else(|status| panic!("{name}: {status}"));
        }
    }
    for name in NODES {
        // Of the 200 calls to one node about two thirds are for partitions of others.
        let (passed_on, failed) = (
            counted(&cluster, name, "archon_node_forwards_total").await,
            counted(&cluster, name, "archon_node_forwards_failed_total").await,
        );
        assert!(passed_on >= 60 && failed == 0, "{name} passed {passed_on} on, {failed} in vain");
        // So does the command line, without contacting a coordinator.
        let via = ["kv", "--via", cluster.node_address(name)];
        for key in &keys[..9] {
            let got = cluster.archon_at("127.0.0.1:1", &[&via[..], &["get", key]].concat());
            assert_eq!((got.code, &got.stdout), (0, key), "{name}: {}", got.stderr);
        }
        let listed = cluster.archon_at("127.0.0.1:1", &[&via[..], &["scan", "n-", "-o", "json"]].concat());
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("a document");
        let threes = listed.as_array().into_iter().flatten().filter(|entry| entry["value"] == "3").count();
        assert_eq!(threes, keys.len(), "each counter has one of every node: {listed}");
        // Regression: a missing table was retried until the time-out (exit 6).
        let misspelt = cluster
            .archon_at("127.0.0.1:1", &[&via[..], &["--table", "ordres", "get", "a", "--timeout", "30s"]].concat());
        assert!(misspelt.code == 3 && misspelt.stderr.contains("knows no table \"ordres\""), "{misspelt:?}");
        assert!(misspelt.stderr.contains("archon table list"), "{misspelt:?}");
    }
}

/// The clients know only athens. All others are killed or paused while they lead, and in the end athens itself.
#[test]
fn one_reachable_node_serves_everything_through_faults() {
    let options = Options { replication: 3, ..Options::default() };
    let load = WorkloadOptions { seed: 71, via: Some("athens"), ..WorkloadOptions::default() };
    let report = Scene::play(EXE, "via athens", &options, &load, |scene| {
        scene.progress(500);
        scene.cluster.take_node("byzantium").kill();
        let served = scene.everyone_is_served();
        scene.say(&format!("killed byzantium: everyone is served after {served:?}"));
        scene.heal();
        scene.progress(200);
        scene.cluster.node("cyrene").pause();
        let served = scene.everyone_is_served();
        scene.say(&format!("paused cyrene: everyone is served after {served:?}"));
        scene.last(LONG);
        scene.heal();
        scene.progress(200);
        scene.cluster.take_node("athens").kill();
        scene.heal();
        scene.progress(200);
    });
    assert!(report.expect("the loopback is there").answered > 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_increments_to_a_killed_leader_count_once() {
    const CALLERS: u64 = 32;
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, replication: 3, ..Options::default() });
    cluster.wait_whole(3);
    let endpoint = cluster.node_address("athens").to_owned();
    let builder = Client::builder([endpoint])
        .transport(cluster.transport(Role::Client))
        .via_endpoints()
        .timeout(Duration::from_secs(60));
    let client = builder.build().await.expect("a client of athens");
    let key = cluster.key_led_by("byzantium");
    let (stop, answered) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (client, key, stop, answered) = (client.clone(), key.clone(), stop.clone(), answered.clone());
            tokio::spawn(async move {
                while answered.load(Ordering::Relaxed) < stop.load(Ordering::Relaxed) {
                    client.increment(&key, 1).await.expect("every increment is answered in the end");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let more = |what: &str, count: u64| {
        let target = answered.load(Ordering::Relaxed) + count;
        wait_for(what, Duration::from_secs(60), || {
            let now = answered.load(Ordering::Relaxed);
            check(now >= target, || format!("{now} of {target} increments"))
        });
        target
    };
    tokio::task::block_in_place(|| {
        more("increments before the leader dies", 500);
        cluster.take_node("byzantium").kill();
        stop.store(more("increments after it died", 500), Ordering::Relaxed);
    });
    for caller in callers {
        caller.await.expect("no caller panics");
    }
    let sum = client.get(&key).await.expect("a get").expect("a counter");
    let counted_up: u64 = std::str::from_utf8(&sum.value).expect("a number").parse().expect("a number");
    assert_eq!(counted_up, answered.load(Ordering::Relaxed), "each counts once");
    let lost = counted(&cluster, "athens", "archon_node_forwards_failed_total").await;
    assert!(lost > 0, "nothing was under way when the leader was killed");
}
