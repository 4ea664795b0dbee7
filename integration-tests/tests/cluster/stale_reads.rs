//! Stale reads at followers (PROTOCOL rule 33): answered without a leader, and only from committed data.

use crate::EXE;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::{check, wait_for};
use serde_json::Value;
use std::time::Duration;

/// Returns the addresses of the nodes that follow the key's partition, and the name of the leader.
fn followers(cluster: &Cluster, key: &str) -> (Vec<String>, String) {
    let leader = cluster.leader_of(key);
    let others = ["athens", "byzantium", "cyrene"].into_iter().filter(|name| *name != leader);
    (others.map(|name| cluster.node_address(name).to_owned()).collect(), leader)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_answer_stale_reads_without_leader_and_quorum() {
    let mut cluster = Cluster::start(EXE, &Options { replication: 3, ..Options::default() });
    cluster.wait_whole(3);
    let builder = cluster.client().timeout(Duration::from_secs(10));
    let client = builder.build().await.expect("a client");
    let key = "city/1";
    client.put(key, "old").await.expect("a put");
    let revision = client.put(key, "new").await.expect("a put").get();
    let (others, leader) = followers(&cluster, key);
    // A follower learns of a commit with the leader's next message.
    let shown = |endpoint: &str| {
        let ran = cluster.archon_at("127.0.0.1:1", &["kv", "--via", endpoint, "get", key, "--stale", "-o", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).map_err(|_| ran.stderr.clone())?;
        check(document["as_of_revision"].as_u64() >= Some(revision), || document.to_string())?;
        Ok::<_, String>(document)
    };
    tokio::task::block_in_place(|| {
        for endpoint in &others {
            let (document, _) = wait_for("the write to be seen", Duration::from_secs(60), || shown(endpoint));
            assert_eq!((&document["value"], &document["address"]), (&"new".into(), &endpoint.as_str().into()));
        }
    });
    for index in 0..3 {
        cluster.take_coordinator(index).kill();
    }
    cluster.node(&leader).pause();
    let hasty = client.with_timeout(Duration::from_secs(2));
    assert!(hasty.get(key).await.is_err(), "no leader");
    for _ in 0..20 {
        let found = hasty.get_stale(key).await.expect("two followers are there");
        assert!(others.contains(&found.address) && found.as_of.get() >= revision, "{found:?}");
        assert_eq!(found.value.expect("it is there").value, "new");
    }
    let ran = cluster.archon_at(&others.join(","), &["kv", "get", key, "--stale"]);
    assert_eq!((ran.code, &*ran.stdout), (0, "new"), "{}", ran.stderr);
    assert!(ran.stderr.contains("as of revision"), "{}", ran.stderr);
    let absent = cluster.archon_at(&others.join(","), &["kv", "get", "nothing", "--stale", "-o", "json"]);
    let document: Value = serde_json::from_str(&absent.stdout).expect("a document");
    assert!(absent.code == 3 && document["existed"] == false && document["as_of_revision"].is_u64(), "{document}");
    cluster.node(&leader).resume();
}
