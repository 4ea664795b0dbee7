//! Operators' mistakes and interruptions.

use crate::EXE;
use archon_client::{Client, Role};
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

async fn client(cluster: &Cluster) -> Client {
    cluster.client().build().await.expect("a client")
}

/// 75: an interrupted wait for a rebalance; the rebalance runs to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_wait_does_not_stop_the_rebalance() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let client = client(&cluster).await;
    for number in 0..100_usize {
        client.put(format!("large-{number}"), vec![7; 256 * 1024]).await.expect("a put");
    }
    cluster.start_node("ephesus");
    cluster.wait_node("ephesus", "alive");
    // A paused target keeps every move in progress during the wait.
    cluster.node("ephesus").pause();
    let list = cluster.coordinator_list();
    let arguments = ["rebalance", "apply", "--wait", "--coordinators", &list].map(str::to_owned).into_iter();
    let arguments: Vec<String> = arguments.chain(cluster.credentials_arguments(Role::Admin, "somebody")).collect();
    let mut waiting = cluster.spawn("waiting", &arguments);
    let running = |status: &Value| status["running"] == true;
    let (status, _) = cluster.wait_json("moves under way", TIMEOUT, &["rebalance", "status"], running);
    assert!(waiting.exited().is_none(), "it waits: {}", waiting.log());
    let pid = Pid::from_raw(waiting.pid().cast_signed()).expect("a process id");
    wait_for("it to have detached", TIMEOUT, || {
        // Repeatedly: before it waits, an interrupt would end it without a message.
        if waiting.exited().is_none() && waiting.log().contains("move") {
            kill_process(pid, Signal::INT).map_err(|error| error.to_string())?;
        }
        check(waiting.exited().is_some(), || waiting.log_tail(5))
    });
    let ended = waiting.exited().expect("it has");
    assert!(ended.success() && waiting.log().contains("the moves continue"), "{ended}: {}", waiting.log());
    assert_eq!(cluster.json(&["rebalance", "status"]).expect("status")["running"], true, "as before: {status}");
    cluster.node("ephesus").resume();
    let done = cluster.wait_rebalanced();
    let moved = done["moves"].as_array().is_some_and(|all| !all.is_empty());
    assert!(moved && cluster.partitions_per_node()["ephesus"] > 0, "{done}");
    for number in 0..100_usize {
        let found = client.get(format!("large-{number}")).await.expect("a get");
        assert_eq!(found.map(|found| found.value.len()), Some(256 * 1024), "large-{number}");
    }
}

/// 73: a node started with the coordinators of another cluster is refused, and changes nothing there; back in its own
/// cluster, it has all its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_started_for_another_cluster_is_refused() {
    let mut cluster = Cluster::start(EXE, &Options { nodes_min: 1, nodes: vec!["athens"], ..Options::default() });
    let client = client(&cluster).await;
    client.put("k", "mine").await.expect("a put");
    cluster.take_node("athens").terminate(Duration::from_secs(60));
    let address = free_addresses(1).remove(0);
    let data = cluster.directory().join("other").display().to_string();
    let peers = format!("1={address}");
    let other = ["coordinator", "--id", "1", "--listen", &address, "--peers", &peers, "--min-nodes", "1", "--data-dir"];
    let shown = cluster.credentials_arguments(Role::Coordinator, "1");
    let other: Vec<String> = other.into_iter().chain([data.as_str()]).map(str::to_owned).chain(shown).collect();
    let _other = cluster.spawn("other-coordinator", &other);
    let status = || {
        let ran = cluster.archon_at(&address, &["status", "--timeout", "1s", "-o", "json"]);
        check(ran.code == 0, || ran.stderr.clone()).map(|()| ran.stdout)
    };
    let (before, _) = wait_for("the other quorum to answer", TIMEOUT, status);
    let mut arguments = cluster.node_arguments("athens", &free_addresses(1).remove(0), &cluster.node_data("athens"));
    let at = arguments.iter().position(|argument| argument == "--coordinators").expect("the flag") + 1;
    arguments[at].clone_from(&address);
    let mut stray = cluster.spawn("stray", &arguments);
    assert_eq!(stray.wait_exit(TIMEOUT).code(), Some(4), "{}", stray.log_tail(5));
    assert!(stray.log().contains("WrongCluster"), "{}", stray.log_tail(5));
    let version = |text: &str| text.lines().find(|line| line.contains("table_version")).map(str::to_owned);
    assert_eq!(version(&status().expect("it answers")), version(&before), "nothing changed there");
    cluster.start_node("athens");
    cluster.wait_online();
    let found = client.get("k").await.expect("a get");
    assert_eq!(found.map(|found| found.value), Some("mine".into()));
}
