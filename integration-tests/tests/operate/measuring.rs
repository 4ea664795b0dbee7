//! `archon bench` on real processes: its output must match what happened.

use crate::EXE;
use archon_integration_tests::{Cluster, Options};
use serde_json::Value;
use std::process::Command;

fn cluster() -> Cluster {
    let options = Options { coordinators: 1, partitions: 8, replication: 2, ..Options::default() };
    Cluster::start(EXE, &options)
}

fn measured(cluster: &Cluster, arguments: &[&str]) -> Value {
    let all =
        [&["bench"], arguments, &["--keys", "300", "--clients", "8", "--warmup", "0", "--timeout", "30s"][..]].concat();
    let found = cluster.json(&all).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found["failed"], 0, "{found}");
    found
}

#[test]
fn bench_counts_operations_and_node_costs() {
    let cluster = cluster();
    let puts = measured(&cluster, &["put", "--operations", "600"]);
    assert_eq!((&puts["operation"], &puts["ops"], &puts["put"]["ops"]), (&"put".into(), &600.into(), &600.into()));
    assert_eq!(puts["bytes_written"], 600 * 116, "{puts}");
    // Each write is synced by both copies; a sync serves at most the eight concurrent writes.
    let syncs = puts["fsyncs_per_op"].as_f64().expect("a number");
    assert!((1.0 / 8.0..=3.0).contains(&syncs), "{puts}");
    assert!(puts["node_cpu_us_per_op"].as_f64() > Some(0.0), "{puts}");
    assert_eq!(puts["nodes"].as_array().map(Vec::len), Some(3), "{puts}");
    let p50 = puts["put"]["p50_us"].as_u64();
    assert!(p50 > Some(0) && p50 <= puts["put"]["p99_us"].as_u64(), "{puts}");

    let gets = measured(&cluster, &["get", "--operations", "600", "--distribution", "zipfian:0.9"]);
    assert_eq!((&gets["ops"], &gets["theta"], &gets["put"]), (&600.into(), &0.9.into(), &Value::Null));
    let mixed = measured(&cluster, &["mixed", "--read-percent", "50", "--operations", "600", "--rate", "500"]);
    let of = |kind: &str| mixed[kind]["ops"].as_u64().unwrap_or(0);
    assert!(of("get") > 100 && of("put") > 100 && of("get") + of("put") == 600, "{mixed}");
    let scans = measured(&cluster, &["scan", "--operations", "50", "--limit", "20", "--no-load"]);
    assert!(scans["entries_scanned"].as_u64() > Some(50 * 10), "{scans}");
}

#[test]
fn bench_failover_measures_the_gap_and_loses_nothing() {
    let cluster = cluster();
    let pid = cluster.node("cyrene").pid().to_string();
    let seen = cluster
        .json(&[
            "bench",
            "failover",
            "--pid",
            &pid,
            "--calm",
            "1s",
            "--duration",
            "5s",
            "--writers",
            "16",
            "--timeout",
            "30s",
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seen["missing"], Value::Array(vec![]), "{seen}");
    let gap = seen["rounds"][0]["disturbed"]["write_gap_ms"].as_f64();
    // No failover before the lease of the killed node has ended.
    assert!(gap > Some(1_000.0), "{seen}");
    assert!(seen["calm"]["operations"].as_u64() > Some(16), "{seen}");
}

/// Measures on a cluster of its own.
fn locally(arguments: &[&str]) -> Value {
    let probes = ["--local", "--calm", "1s", "--writers", "9", "-o", "json"];
    let ran = Command::new(EXE).arg("bench").args(arguments).args(probes).output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[test]
fn bench_on_own_cluster_disturbs_and_heals() {
    let seen = locally(&["failover", "--disturb", "stop", "--disturb", "coordinator-leader", "--duration", "1s"]);
    let rounds = seen["rounds"].as_array().expect("rounds");
    let names: Vec<_> = rounds.iter().map(|round| &round["disturbance"]).collect();
    assert_eq!(names, ["stop", "coordinator-leader"], "{seen}");
    for round in rounds {
        // Every writer was answered in both phases.
        let operations = ["disturbed", "healing"].map(|when| round[when]["operations"].as_u64().unwrap_or(0));
        assert!(operations.iter().all(|operations| *operations > 9), "{seen}");
    }
    assert_eq!(seen["missing"], Value::Array(vec![]), "{seen}");

    let seen = locally(&["rebalance", "--keys", "1000", "--value-bytes", "100", "--clients", "2"]);
    let (copies, load) = (seen["copies"].as_f64().expect("a number"), &seen["load"]);
    assert!(copies >= 6.0 && load["keys_missing"] == 0, "{seen}");
    // Nine partitions of a thousand keys of 116 bytes.
    let megabytes = copies * 116.0 * 1e-3 / 9.0;
    assert!(load["moved_megabytes"].as_f64().is_some_and(|moved| (moved - megabytes).abs() < 1e-6), "{seen}");
    for when in ["before", "during", "after"] {
        assert!(load[when]["put"]["ops"].as_u64() > Some(0) && load[when]["get"]["failed"] == 0, "{when}: {seen}");
    }
}
