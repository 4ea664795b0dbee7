//! Log lines of slow operations, with a breakdown of their time, on real processes.

use crate::EXE;
use archon_integration_tests::disk::{DURABLE_CALLS, Injection};
use archon_integration_tests::{Cluster, Options};
use archon_testkit::{skipped, wait_for};
use std::collections::BTreeMap;
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(60);
/// Neither occurs in a log otherwise.
const KEY: &str = "key-of-nobody-else";
const VALUE: &str = "value-of-nobody-else";

fn cluster() -> Cluster {
    let cluster = Cluster::start(
        EXE,
        &Options { coordinators: 1, nodes: NODES.to_vec(), partitions: 4, ..Options::replicated() },
    );
    cluster.wait_whole(3);
    put(&cluster);
    cluster
}

fn put(cluster: &Cluster) {
    let ran = cluster.archon(&["kv", "put", KEY, VALUE]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

/// Returns the log lines of slow operations of a node: the fields of each line.
fn told(cluster: &Cluster, node: &str) -> Vec<BTreeMap<String, String>> {
    let log = cluster.node(node).log();
    let lines = log.lines().filter(|line| line.contains("slow_operation: slow operation"));
    let fields = |line: &str| {
        let fields = line.split_whitespace().filter_map(|field| field.split_once('='));
        fields.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
    };
    lines.map(fields).collect()
}

fn millis(line: &BTreeMap<String, String>, field: &str) -> u64 {
    line.get(field).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{field} of {line:?}"))
}

/// Waits for the line of a put with at least this latency.
fn slow_put(cluster: &Cluster, node: &str, least_ms: u64) -> BTreeMap<String, String> {
    let slow = || {
        let told = told(cluster, node);
        let put = |line: &&BTreeMap<String, String>| line["op"] == "put" && millis(line, "took_ms") >= least_ms;
        told.iter().find(put).cloned().ok_or_else(|| format!("{node}: {told:?}"))
    };
    wait_for("a line of a slow put", TIMEOUT, slow).0
}

#[test]
fn leader_logs_write_that_waits_for_a_follower() {
    let cluster = cluster();
    let leader = cluster.leader_of(KEY);
    let follower = NODES.into_iter().find(|name| *name != leader).expect("three nodes");
    cluster.node(follower).pause();
    put(&cluster);
    cluster.node(follower).resume();
    let line = slow_put(&cluster, &leader, 100);
    let replicated_ms = millis(&line, "replicated_ms");
    assert!(replicated_ms > 100 && replicated_ms > millis(&line, "logged_ms"), "{line:?}");
    assert!(line["partition"].starts_with("default/") && !line.contains_key("read_ms"), "{line:?}");
    let log = cluster.node(&leader).log();
    assert!(!log.contains(KEY) && !log.contains(VALUE), "nobody asked for keys in a log: {log}");
}

#[test]
fn slow_write_log_names_the_disk() {
    let cluster = cluster();
    let leader = cluster.leader_of(KEY);
    let slow = format!("{DURABLE_CALLS}:delay_enter=400000");
    let Some(injection) = Injection::start(cluster.node(&leader).pid(), &[&slow]) else {
        skipped("this machine does not let a test trace a process");
        return;
    };
    put(&cluster);
    drop(injection);
    let line = slow_put(&cluster, &leader, 400);
    assert!(millis(&line, "logged_ms") >= 400, "{line:?}");
    assert!(millis(&line, "queued_ms") + millis(&line, "logged_ms") <= millis(&line, "took_ms"), "{line:?}");
}

#[test]
fn forwarding_node_logs_the_slow_operation() {
    let cluster = cluster();
    let leader = cluster.leader_of(KEY);
    let other = NODES.into_iter().find(|name| *name != leader).expect("three nodes");
    cluster.node(&leader).pause();
    // Answered once another node leads.
    let ran = cluster.archon(&["kv", "--via", cluster.node_address(other), "get", KEY, "--timeout", "30s"]);
    cluster.node(&leader).resume();
    assert_eq!((ran.code, &*ran.stdout), (0, VALUE), "{}", ran.stderr);
    let slow = || {
        let told = told(&cluster, other);
        let passed_on = told.iter().find(|line| line["op"] == "get" && line.contains_key("passed_on_ms"));
        passed_on.cloned().ok_or_else(|| format!("{other}: {told:?}"))
    };
    let (line, _) = wait_for("a line of what was passed on", TIMEOUT, slow);
    assert!(millis(&line, "passed_on_ms") > 100 && !line.contains_key("read_ms"), "{line:?}");
}
