//! Two recoveries from one directory under one generation number: two histories of a cluster.

use crate::EXE;
use archon_integration_tests::recovering::copy_directory;
use archon_integration_tests::{Cluster, Options, ProcessExt, Rows};
use archon_testkit::{check, wait_for};
use serde_json::Value;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until the current recovery has doubts, exactly of these kinds.
fn wait_doubts(cluster: &Cluster, kinds: &[&str]) -> Vec<Value> {
    let doubts = || {
        let quorum = cluster.json(&["quorum", "list"])?;
        let doubts = quorum["recovery"]["doubts"].as_array().cloned().unwrap_or_default();
        let known = doubts.iter().all(|doubt| kinds.iter().any(|kind| doubt["kind"] == *kind));
        check(!doubts.is_empty() && known, || quorum.to_string()).map(|()| doubts)
    };
    wait_for(&format!("only doubts of {kinds:?}"), TIMEOUT, doubts).0
}

fn generation_key(cluster: &Cluster) -> String {
    let quorum = cluster.json(&["quorum", "list"]).expect("a quorum");
    assert_eq!(quorum["generation"], 2, "{quorum}");
    quorum["generation_key"].as_str().expect("a key").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_another_recovery_is_refused() {
    let mut cluster = Cluster::start_whole(EXE, &Options { partitions: 8, coordinators: 1, ..Options::replicated() });
    cluster.wait_protocol(2);
    let client = cluster.client().timeout(TIMEOUT).build().await.expect("a client");
    let rows = Rows::written(&client, 100).await;
    let left = cluster.put_aside(1, "left");

    // A recovery with only cyrene running, which is given up.
    for city in ["athens", "byzantium"] {
        cluster.take_node(city).kill();
    }
    cluster.recover(1, &left, &[]);
    wait_for("cyrene to be heard", TIMEOUT, || {
        let alive = cluster.archon(&["node", "list", "-o", "json"]);
        check(alive.stdout.matches("\"alive\"").count() == 1, || format!("{alive:?}"))
    });
    let first_key = generation_key(&cluster);
    cluster.take_node("cyrene").kill();
    let first = cluster.put_aside(1, "first");

    // Another recovery from the same directory, without knowledge of the first one.
    cluster.recover(1, &left, &[]);
    for city in ["athens", "byzantium"] {
        cluster.start_node(city);
    }
    wait_for("the two to be heard", TIMEOUT, || {
        let alive = cluster.archon(&["node", "list", "-o", "json"]);
        check(alive.stdout.matches("\"alive\"").count() == 2, || format!("{alive:?}"))
    });
    cluster.done(&["node", "lost", "cyrene", "--accept-data-loss"]);
    cluster.wait_recovered(2);
    let second_key = generation_key(&cluster);
    assert_ne!(first_key, second_key);
    cluster.wait_whole(2);
    rows.write(&client).await;

    // Cyrene took part in the first one.
    cluster.start_node("cyrene");
    wait_for("its node to say why it is refused", TIMEOUT, || {
        let log = cluster.node("cyrene").log_tail(40);
        let said = log.contains("WARN") && log.contains("OtherHistory");
        check(said && [&first_key, &second_key].iter().all(|key| log.contains(*key)), || log)
    });
    wait_for("the coordinators to say so", TIMEOUT, || {
        let checked = cluster.archon(&["check"]);
        check(checked.code == 11 && checked.stdout.contains("OtherHistory"), || format!("{checked:?}"))
    });
    let status = cluster.archon(&["status"]);
    assert!(status.stdout.contains("cyrene is refused") && status.stdout.contains("--generation 3"), "{status:?}");
    cluster.wait_node("cyrene", "lost");
    rows.assert_there(&client).await;

    // The first recovery reports the same of the others.
    let second = cluster.put_aside(1, "second");
    copy_directory(&first, &cluster.coordinator_data(1));
    cluster.start_coordinator(0);
    wait_for("the first ones to refuse the others", TIMEOUT, || {
        let checked = cluster.archon(&["check"]);
        let of = |city: &str| checked.stdout.contains(&format!("{city} is refused"));
        check(of("athens") && of("byzantium"), || format!("{checked:?}"))
    });
    assert!(cluster.take_coordinator(0).terminate(TIMEOUT).success());
    std::fs::remove_dir_all(cluster.coordinator_data(1)).expect("it is of no use");

    // A higher generation admits all; writes in the discontinued history do not count.
    cluster.recover(1, &second, &["--generation", "3"]);
    let doubts = wait_doubts(&cluster, &["other_history"]);
    assert_eq!(doubts[0]["about"], "cyrene", "{doubts:?}");
    cluster.done(&["quorum", "settle", "--accept-data-loss"]);
    cluster.wait_recovered(3);
    cluster.wait_node("cyrene", "alive");
    rows.assert_there(&client).await;
}
