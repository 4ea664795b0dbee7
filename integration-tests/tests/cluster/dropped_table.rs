//! A table is dropped while one of its nodes is away, on real processes.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use serde_json::Value;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const VALUE_BYTES: usize = 4_096;

/// Runs a command that must exit with this code and print nothing, and returns its standard error.
fn refused(cluster: &Cluster, arguments: &[&str], code: i32) -> String {
    let ran = cluster.archon(arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{arguments:?}: {}", ran.stderr);
    ran.stderr
}

/// Returns the stored bytes that each node reports.
fn stored(cluster: &Cluster) -> Result<Vec<(String, Option<u64>)>, String> {
    let nodes = cluster.json(&["node", "list"])?;
    let node = |node: &Value| (node["node"].as_str().unwrap_or("").to_owned(), node["bytes_stored"].as_u64());
    Ok(nodes.as_array().map(|nodes| nodes.iter().map(node).collect()).unwrap_or_default())
}

fn wait_stored(cluster: &Cluster, what: &str, holds: impl Fn(&str, u64) -> bool) {
    wait_for(what, TIMEOUT, || {
        let stored = stored(cluster)?;
        let all = stored.len() == NODES.len()
            && stored.iter().all(|(node, bytes)| bytes.is_some_and(|bytes| holds(node, bytes)));
        check(all, || format!("{stored:?}"))
    });
}

#[test]
fn dropped_table_is_deleted_on_every_node_and_frees_its_name() {
    let options = Options { coordinators: 1, partitions: 1, nodes_min: 2, replication: 2, ..Options::default() };
    let mut cluster = Cluster::start(EXE, &options);
    let create = ["table", "create", "orders", "--partitions", "4", "--replication", "3"];
    for name in NODES {
        cluster.wait_node(name, "alive");
    }
    cluster.done(&create);
    wait_for("the table to be served", TIMEOUT, || {
        let ran = cluster.archon(&["kv", "put", "--table", "orders", "order/0", "first"]);
        check(ran.code == 0, || ran.stderr)
    });
    let value = "v".repeat(VALUE_BYTES);
    cluster.put_all("orders", (0..40).map(|number| (format!("order/{number}"), value.clone())));
    cluster.done(&["kv", "put", "kept", "value"]);
    wait_stored(&cluster, "the sizes to be told", |_, bytes| bytes > 40 * VALUE_BYTES as u64);

    // Without --yes nothing is dropped; the refusal describes the effect.
    let why = refused(&cluster, &["table", "drop", "orders"], 4);
    for part in ["nothing was dropped", "table orders", "4 partitions", "12 replicas on 3 nodes", "--yes"] {
        assert!(why.contains(part), "{part:?} is not in {why}");
    }
    assert!(refused(&cluster, &["table", "drop", "odrers"], 3).contains("the tables are: default, orders"));

    // One node is away when the table is dropped.
    cluster.take_node("athens").kill();
    cluster.wait_node("athens", "failed");
    let told = cluster.done(&["table", "drop", "orders", "--yes"]);
    assert!(told.contains("dropped table orders") && told.contains("12 replicas"), "{told}");
    refused(&cluster, &["kv", "get", "--table", "orders", "order/0"], 3);
    let status = cluster.wait_condemned(4);
    let reason = status["reasons"].as_array().and_then(|reasons| {
        reasons.iter().find(|reason| reason["code"] == "copies_condemned").map(|reason| reason["message"].to_string())
    });
    assert!(reason.as_ref().is_some_and(|reason| reason.contains("4 on athens, which is not alive")), "{status}");

    // The name is free; the new table is another one, and empty.
    cluster.done(&["table", "create", "orders", "--partitions", "2", "--replication", "2"]);
    wait_for("the new table to be served", TIMEOUT, || {
        let ran = cluster.archon(&["kv", "get", "--table", "orders", "order/0"]);
        check(ran.code == 3 && ran.stderr.contains("order/0"), || format!("{ran:?}"))
    });
    cluster.done(&["kv", "put", "--table", "orders", "order/0", "new"]);
    for number in 1..40 {
        refused(&cluster, &["kv", "get", "--table", "orders", &format!("order/{number}")], 3);
    }

    // The absent node deletes its copies when it is back.
    cluster.start_node("athens");
    cluster.wait_node("athens", "alive");
    cluster.wait_condemned(0);
    let small = |_: &str, bytes: u64| bytes < VALUE_BYTES as u64;
    wait_stored(&cluster, "nothing of it to be left", small);

    // The disks are empty too: nodes count their data at start.
    for name in NODES {
        assert!(cluster.take_node(name).terminate(Duration::from_secs(60)).success());
    }
    for name in NODES {
        cluster.start_node(name);
    }
    cluster.wait_online();
    wait_stored(&cluster, "nothing of it to be found", small);
    assert_eq!(cluster.done(&["kv", "get", "--table", "orders", "order/0"]), "new");
    assert_eq!(cluster.done(&["kv", "get", "kept"]), "value");
    let events = cluster.done(&["events"]);
    let dropped = events.lines().find(|line| line.contains("dropped with its 4 partitions"));
    let by = |line: &str| line.contains("operator at 127.0.0.1") || line.contains("admin/");
    assert!(dropped.is_some_and(|line| by(line) && line.contains("table orders")), "{events}");
}
