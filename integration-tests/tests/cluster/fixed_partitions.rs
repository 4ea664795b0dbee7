//! Fixed partitions on real processes: assignment, growth by plan, and keys that stay where they are.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::{Cluster, Load, Options};
use serde_json::Value;
use std::collections::BTreeMap;

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn moves(plan: &Value) -> usize {
    plan["moves"].as_array().map_or(0, Vec::len)
}

async fn client(cluster: &Cluster) -> Client {
    cluster.client().build().await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fourth_node_joins_nine_partitions_under_load() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    assert_eq!(cluster.partitions_per_node(), counts(&[("athens", 3), ("byzantium", 3), ("cyrene", 3)]));

    let client = client(&cluster).await;
    let load = Load::start(&client, "grow", 8);
    cluster.start_node("ephesus");
    cluster.wait_node("ephesus", "alive");
    let plan = cluster.json(&["rebalance", "plan"]).expect("a plan");
    assert!((1..=2).contains(&moves(&plan)), "at most two moves: {plan}");
    let applied = cluster.archon(&["rebalance", "apply", "--wait", "--timeout", "60s"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let status = cluster.wait_rebalanced();
    for migration in status["moves"].as_array().into_iter().flatten() {
        assert_eq!(migration["phase"], "done", "{status}");
        assert_eq!(migration["percent"], 100, "{status}");
    }

    let report = load.stop().await;
    report.assert_no_failure();
    assert!(report.operations > 100, "the load did something: {}", report.operations);
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    let held = cluster.partitions_per_node();
    let mut shares: Vec<u64> = held.values().copied().collect();
    shares.sort_unstable();
    assert_eq!(shares, [2, 2, 2, 3], "{held:?}");
    let again = cluster.json(&["rebalance", "plan"]).expect("a second plan");
    assert_eq!(moves(&again), 0, "{again}");
}

#[test]
fn thirty_partitions_spread_evenly_over_a_fourth_node() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, partitions: 30, ..Options::default() });
    cluster.start_node("ephesus");
    cluster.wait_node("ephesus", "alive");
    let applied = cluster.archon(&["rebalance", "apply", "--wait", "--timeout", "60s"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    cluster.wait_rebalanced();
    let mut shares: Vec<u64> = cluster.partitions_per_node().into_values().collect();
    shares.sort_unstable();
    assert_eq!(shares, [7, 7, 8, 8]);
    assert_eq!(moves(&cluster.json(&["rebalance", "plan"]).expect("a second plan")), 0);
}

#[test]
fn partition_list_json_matches_the_contract() {
    let cluster = Cluster::start(EXE, &Options::default());
    let fields = |value: &Value| -> Vec<String> {
        value.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
    };
    let has = |value: &Value, expected: &[&str]| {
        let found = fields(value);
        for field in expected {
            assert!(found.iter().any(|name| name == field), "{field} is missing in {value}");
        }
    };
    let status = cluster.json(&["status"]).expect("status");
    has(
        &status,
        &[
            "cluster_id",
            "leader_id",
            "term",
            "coordinators",
            "table_version",
            "nodes_alive",
            "nodes_failed",
            "partitions_total",
            "partitions_online",
            "moves_running",
        ],
    );
    has(&status["coordinators"][0], &["coordinator_id", "address", "role"]);
    let roles = status["coordinators"].as_array().expect("an array").iter().filter(|c| c["role"] == "leader").count();
    assert_eq!(roles, 1, "one leads: {status}");
    let nodes = cluster.json(&["node", "list"]).expect("node list");
    has(&nodes[0], &["node_id", "node", "address", "status", "incarnation", "copies_held", "partitions_led", "zone"]);
    let partitions = cluster.json(&["partition", "list"]).expect("partition list");
    has(&partitions[0], &["table", "partition", "epoch", "version", "status", "leader", "copies"]);
    has(&partitions[0]["copies"][0], &["node", "placement_id", "state"]);
    let names = ["athens", "byzantium", "cyrene"];
    assert!(partitions[0]["leader"].as_str().is_some_and(|name| names.contains(&name)), "{partitions}");
    has(&cluster.json(&["rebalance", "plan"]).expect("a plan"), &["table_version", "moves", "unmet"]);
    has(&cluster.json(&["rebalance", "status"]).expect("its status"), &["running", "moves"]);
}

#[test]
fn command_line_reads_and_writes_keys() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    for (key, value) in [("alpha", "1"), ("beta", "two words"), ("{tag}a", "x"), ("{tag}b", "y")] {
        let put = cluster.archon(&["kv", "put", key, value]);
        assert_eq!(put.code, 0, "{}", put.stderr);
        let get = cluster.archon(&["kv", "get", key]);
        assert_eq!((get.code, get.stdout.trim_end()), (0, value), "{}", get.stderr);
    }
    assert_eq!(cluster.leader_of("{tag}a"), cluster.leader_of("{tag}b"));
    let scan = cluster.archon(&["kv", "scan", "--prefix", "{tag}"]);
    assert!(scan.stdout.contains("{tag}a") && scan.stdout.contains("{tag}b") && !scan.stdout.contains("alpha"));
    assert_eq!(cluster.archon(&["kv", "del", "alpha"]).code, 0);
    let absent = cluster.archon(&["kv", "get", "alpha"]);
    assert_eq!((absent.code, absent.stdout.as_str()), (3, ""));
    // The largest allowed value, and a table found through a node instead of a coordinator.
    let node = cluster.node_address("athens").to_owned();
    let through_node = cluster.archon_at(&node, &["kv", "get", "beta"]);
    assert_eq!((through_node.code, through_node.stdout.trim_end()), (0, "two words"), "{}", through_node.stderr);
}
