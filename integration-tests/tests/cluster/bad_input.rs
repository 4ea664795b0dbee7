//! Bad input gets a typed error with a remedy, and leaves the state unchanged.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use std::time::Duration;

#[test]
fn too_few_nodes_error_names_have_and_need() {
    let mut cluster =
        Cluster::start(EXE, &Options { coordinators: 1, nodes: vec!["athens", "byzantium"], ..Options::default() });
    cluster.wait_node("athens", "alive");
    cluster.wait_node("byzantium", "alive");
    let put = cluster.archon(&["kv", "put", "k", "v", "--timeout", "2s"]);
    assert_ne!(put.code, 0);
    assert!(put.stderr.contains("NotEnoughNodes") || put.stderr.contains("have 2"), "{}", put.stderr);
    cluster.start_node("cyrene");
    cluster.wait_online();
    assert_eq!(cluster.archon(&["kv", "put", "k", "v"]).code, 0);
}

#[test]
fn stale_plan_and_second_plan_are_refused() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    cluster.start_node("ephesus");
    cluster.wait_node("ephesus", "alive");
    let file = cluster.directory().join("plan.json").display().to_string();
    assert_eq!(cluster.archon(&["rebalance", "plan", "--out", &file]).code, 0);
    // Another table advances the table version.
    let created = cluster.archon(&["table", "create", "orders", "--partitions", "4", "--replication", "1"]);
    assert_eq!(created.code, 0, "{}", created.stderr);
    let stale = cluster.archon(&["rebalance", "apply", &file]);
    assert_eq!(stale.code, 4, "{}", stale.stderr);
    assert!(stale.stderr.contains("StalePlan") || stale.stderr.contains("version"), "{}", stale.stderr);
    assert!(stale.stderr.contains("rebalance plan"), "names the next command: {}", stale.stderr);
    let again = cluster.archon(&["table", "create", "orders", "--partitions", "4", "--replication", "1"]);
    assert_eq!(again.code, 4, "{}", again.stderr);
}

#[test]
fn invalid_keys_and_values_are_refused() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let long = "k".repeat(4 * 1024 + 1);
    for (arguments, word) in [(vec!["kv", "put", "", "v"], "empty"), (vec!["kv", "put", &long, "v"], "4096")] {
        let ran = cluster.archon(&arguments);
        assert!(ran.code == 2 || ran.code == 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
    assert_eq!(cluster.archon(&["partition", "list", "--table", "nothing"]).code, 3);
    assert_eq!(cluster.archon(&["node", "describe", "nobody"]).code, 3);
    assert_eq!(cluster.archon(&["kv", "get", "never-written"]).code, 3);
}

#[test]
fn second_node_with_the_same_name_is_refused() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let address = free_addresses(1).remove(0);
    let arguments = cluster.node_arguments("athens", &address, &cluster.directory().join("impostor"));
    let mut impostor = cluster.spawn("impostor", &arguments);
    wait_for("the impostor to be told", Duration::from_secs(60), || {
        let ended = impostor.exited().is_some();
        check(ended && impostor.log().contains("NameTaken"), || impostor.log_tail(5))
    });
    assert_eq!(cluster.partitions_per_node().len(), 3);
    assert_eq!(cluster.json(&["status"]).expect("status")["nodes_alive"], 3);
}

#[test]
fn node_of_another_cluster_is_refused() {
    let mut cluster =
        Cluster::start(EXE, &Options { coordinators: 1, nodes_min: 1, nodes: vec!["athens"], ..Options::default() });
    cluster.take_node("athens").terminate(Duration::from_secs(60));
    let data = cluster.directory().join("node-athens");
    // A second quorum, which does not know this data directory.
    let address = free_addresses(1).remove(0);
    let other = ["coordinator", "--id", "1", "--listen", &address, "--peers", &format!("1={address}"), "--data-dir"]
        .map(str::to_owned)
        .into_iter()
        .chain([cluster.directory().join("other").display().to_string()])
        .chain(cluster.credentials_arguments(Role::Coordinator, "1"))
        .collect::<Vec<_>>();
    let _other = cluster.spawn("other-coordinator", &other);
    wait_for("the other quorum to answer", Duration::from_secs(60), || {
        let ran = cluster.archon_at(&address, &["status", "--timeout", "1s"]);
        check(ran.code == 0, || ran.stderr)
    });
    let listen = free_addresses(1).remove(0);
    let mut arguments = cluster.node_arguments("athens", &listen, &data);
    let at = arguments.iter().position(|argument| argument == "--coordinators").expect("the flag") + 1;
    arguments[at] = address;
    let mut node = cluster.spawn("stray", &arguments);
    wait_for("the stray node to be told", Duration::from_secs(60), || {
        let ended = node.exited().is_some();
        check(ended && node.log().contains("WrongCluster"), || node.log_tail(5))
    });
}

#[test]
fn data_directory_in_use_is_refused() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let address = free_addresses(1).remove(0);
    let arguments = cluster.node_arguments("athens", &address, &cluster.directory().join("node-athens"));
    let mut second = cluster.spawn("second", &arguments);
    let status = second.wait_exit(Duration::from_secs(60));
    assert!(!status.success());
    assert!(second.log().contains("in use") || second.log().contains("locked"), "{}", second.log());
}

#[test]
fn wiped_coordinator_is_refused() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    cluster.take_coordinator(2).kill();
    let data = cluster.directory().join("coordinator-3").display().to_string();
    let addresses = cluster.coordinator_addresses();
    let spawn = |name: &str, more: [&str; 5]| {
        let arguments = [&["coordinator", "--listen", &addresses[2]], &more[..]].concat();
        let shown = cluster.credentials_arguments(Role::Coordinator, more[1]);
        cluster.spawn(name, &arguments.into_iter().map(str::to_owned).chain(shown).collect::<Vec<_>>())
    };
    std::fs::remove_dir_all(&data).expect("wiping the disk");
    // Neither bootstrapped nor joined again: its number belongs to a voter with another directory.
    let mut joins = spawn("wiped-joins", ["--id", "3", "--join", &addresses[0], &format!("--data-dir={data}-wiped")]);
    assert_eq!(joins.wait_exit(Duration::from_secs(60)).code(), Some(4));
    assert!(joins.log().contains("archon quorum replace 3 4"), "{}", joins.log());
    let mut new = spawn("says-nothing", ["--id", "4", "--log", "info", &format!("--data-dir={data}-new")]);
    assert_eq!(new.wait_exit(Duration::from_secs(60)).code(), Some(2));
    assert!(new.log().contains("--peers to found a quorum, or --join"), "{}", new.log());
    cluster.start_coordinator(2);
    wait_for("the wiped voter to be refused", Duration::from_secs(60), || {
        let log = cluster.coordinator(2).log();
        check(log.contains("wiped") || log.contains("storage id"), || cluster.coordinator(2).log_tail(5))
    });
    cluster.wait_online();
}
