//! Tables by ranges, through the command line and the library, on real processes.

use crate::EXE;
use archon_client::Entry;
use archon_integration_tests::strike;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::wait_for;
use futures::TryStreamExt;
use serde_json::{Value, json};
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(60);

fn cluster() -> Cluster {
    let cluster = Cluster::start(
        EXE,
        &Options { coordinators: 1, nodes: NODES.to_vec(), partitions: 4, ..Options::replicated() },
    );
    cluster.wait_whole(3);
    cluster
}

fn refused(cluster: &Cluster, arguments: &[&str]) -> (i32, String) {
    let ran = cluster.archon(arguments);
    (ran.code, ran.stderr)
}

fn wait_served(cluster: &Cluster) {
    let online = |row: &Value| row["status"] == "online";
    cluster.wait_json("the table to be served", TIMEOUT, &["partition", "list", "--table", "times"], |listed| {
        listed.as_array().is_some_and(|rows| !rows.is_empty() && rows.iter().all(online))
    });
}

fn keys(cluster: &Cluster, arguments: &[&str]) -> Vec<String> {
    let arguments = [&["kv", "scan", "--table", "times", "-o", "json"], arguments].concat();
    let listed: Value = serde_json::from_str(&cluster.done(&arguments)).expect("a listing");
    listed.as_array().into_iter().flatten().filter_map(|entry| entry["key"].as_str()).map(str::to_owned).collect()
}

#[test]
fn range_table_is_listed_in_order_across_partitions() {
    let mut cluster = cluster();
    // In any order.
    cluster.done(&["table", "create", "times", "--range", "--split-at", "m,g,t", "--replication", "3"]);
    wait_served(&cluster);
    let ranges: Vec<Value> = cluster.partitions("times").iter().map(|row| row["range"].clone()).collect();
    let range = |begin: &str, end: Value| json!({"begin": begin, "end": end});
    assert_eq!(
        ranges,
        [range("", json!("g")), range("g", json!("m")), range("m", json!("t")), range("t", Value::Null)]
    );
    let all = ["a", "f", "fz", "g", "ga", "k", "m", "s", "t", "z"];
    for key in all.iter().rev() {
        cluster.done(&["kv", "put", key, "v", "--table", "times"]);
    }
    for (key, partition) in [("a", 0), ("fz", 0), ("g", 1), ("s", 2), ("t", 3)] {
        let found = cluster.json(&["partition", "locate", key, "--table", "times"]).expect("locate");
        assert_eq!((&found["partition"], &found["slot"]), (&json!(partition), &Value::Null), "{key}");
    }
    assert_eq!(keys(&cluster, &[]), all);
    assert_eq!(keys(&cluster, &["--reverse"]), all.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(keys(&cluster, &["--from", "fz", "--to", "m"]), ["fz", "g", "ga", "k"]);
    assert_eq!(keys(&cluster, &["--from", "fz", "--to", "m", "--reverse", "--limit", "3"]), ["k", "ga", "g"]);
    assert_eq!(keys(&cluster, &["--after", "g", "--limit", "2"]), ["ga", "k"]);
    assert_eq!(keys(&cluster, &["--after", "g", "--reverse"]), ["fz", "f", "a"]);
    assert_eq!(keys(&cluster, &["g"]), ["g", "ga"]);
    assert_eq!(keys(&cluster, &["--from", "z1"]), [""; 0]);
    let text = cluster.done(&["partition", "list", "--table", "times"]);
    assert!(text.contains("BEGIN") && text.contains("END"), "{text}");

    // A listing merges the rows of a leader's engine with those in memory.
    for node in NODES {
        cluster.kill_and_return(node);
    }
    wait_served(&cluster);
    cluster.done(&["kv", "put", "gb", "v", "--table", "times"]);
    cluster.done(&["kv", "delete", "k", "--table", "times"]);
    assert_eq!(keys(&cluster, &["--from", "g", "--to", "n", "--reverse"]), ["m", "gb", "ga", "g"]);
}

#[test]
fn client_streams_many_keys_in_either_order() {
    let cluster = cluster();
    cluster.done(&["table", "create", "times", "--range", "--split-at", "key-0300,key-0600", "--replication", "3"]);
    wait_served(&cluster);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = cluster.client().table("times").build().await.expect("a client");
        let names: Vec<String> = (0..1_000).map(|number| format!("key-{number:04}")).collect();
        let puts = names.iter().map(|key| archon_client::Op::Put { key: key.clone().into(), value: "v".into() });
        for put in client.batch(puts.collect()).await.expect("a batch") {
            put.expect("a put");
        }
        let listed = async |scan: archon_client::Scan<'_>| -> Vec<String> {
            let entries: Vec<Entry> = scan.limit(70).entries().try_collect().await.expect("a listing");
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect()
        };
        assert_eq!(listed(client.scan("")).await, names);
        assert!(listed(client.scan("").reverse()).await.iter().rev().eq(&names));
        let part = listed(client.scan("key-").from("key-0250").to("key-0700").after("key-0299")).await;
        assert_eq!(part, names[300..700]);
    });
}

#[test]
fn invalid_range_table_options_are_refused() {
    let cluster = cluster();
    let create = |more: &[&str]| refused(&cluster, &[&["table", "create", "times"], more].concat());
    for (wrong, code, says) in [
        (&["--range", "--split-at", "a,a", "--replication", "3"][..], 2, "twice"),
        (&["--range", "--split-at", "a,,b", "--replication", "3"], 2, "empty"),
        (&["--range", "--partitions", "4", "--replication", "3"], 2, "cannot be used with"),
        (&["--range", "--lease"], 2, "cannot be used with"),
        (&["--split-at", "a", "--partitions", "4", "--replication", "3"], 2, "cannot be used with"),
        (&["--split-at", "a", "--replication", "3"], 2, "--range"),
        (&["--range", "--replication", "9"], 2, "9"),
        (&["--range", "--replication", "5"], 4, "5"),
    ] {
        let (found, stderr) = create(wrong);
        assert!(found == code && stderr.contains(says), "{wrong:?}: {found} {stderr}");
    }
    assert!(!cluster.done(&["table", "list"]).contains("times"));
}

#[test]
fn every_node_answers_every_key_after_split_and_merge() {
    let cluster = cluster();
    cluster.done(&["table", "create", "times", "--range", "--split-at", "m,t", "--replication", "3"]);
    let wait = |count: usize| strike::wait_served(&cluster, "times", count);
    wait(3);
    let all = ["a", "k", "m", "s", "t", "z"];
    for key in all {
        cluster.done(&["kv", "put", key, key, "--table", "times"]);
    }
    // Without a coordinator: any node forwards the request, or reads its own copy.
    let via = |node: &str, arguments: &[&str]| {
        let arguments = [&["kv", "--via", cluster.node_address(node)], arguments, &["--table", "times"]].concat();
        cluster.archon_at("127.0.0.1:1", &arguments)
    };
    let look = |what: &str| {
        for node in NODES {
            for key in all {
                let got = via(node, &["get", key]);
                assert_eq!((got.code, &*got.stdout), (0, key), "{what}, {node}: {}", got.stderr);
                // A copy learns of a commit, and its keys, with the leader's next message.
                wait_for("its own copy to have it", TIMEOUT, || {
                    let stale = via(node, &["get", key, "--stale"]);
                    if (stale.code, &*stale.stdout) == (0, key) { Ok(()) } else { Err(format!("{what}: {stale:?}")) }
                });
            }
            let listed = via(node, &["scan", "-o", "json"]);
            let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|_| panic!("{listed:?}"));
            let found: Vec<&str> = listed.as_array().into_iter().flatten().filter_map(|e| e["key"].as_str()).collect();
            assert_eq!(found, all, "{what}, {node}");
            let put = via(node, &["put", "k", "k"]);
            assert_eq!(put.code, 0, "{what}, {node}: {}", put.stderr);
        }
    };
    look("three partitions");
    cluster.done(&["partition", "split", "0", "--table", "times", "--at", "g", "--wait"]);
    wait(4);
    look("a split");
    cluster.done(&["partition", "merge", "1", "--table", "times", "--wait"]);
    wait(3);
    look("a merge");
}
