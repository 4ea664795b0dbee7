//! Operators and scripts on the command line, on real processes: every verb, its output and its exit code.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn four_nodes() -> Options {
    Options {
        coordinators: 1,
        nodes: vec!["athens", "byzantium", "cyrene", "ephesus"],
        partitions: 8,
        nodes_min: 4,
        ..Options::replicated()
    }
}

/// Returns the standard error of a refused verb.
fn refused(cluster: &Cluster, arguments: &[&str]) -> String {
    let ran = cluster.archon(arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{arguments:?}: {}", ran.stderr);
    ran.stderr
}

fn node(cluster: &Cluster, name: &str) -> Value {
    cluster.json(&["node", "describe", name]).expect("node describe")
}

#[test]
fn node_is_cordoned_drained_and_removed() {
    let mut cluster = Cluster::start(EXE, &four_nodes());
    cluster.wait_whole(3);
    cluster.put_all("default", (0..50).map(|number| (format!("k/{number}"), "v")));
    // Cordon and back. Uncordon does not undo a drain, nor undrain a cordon.
    assert!(cluster.done(&["node", "cordon", "athens"]).contains("receives no new ones"));
    assert_eq!(node(&cluster, "athens")["goal"], "cordon");
    assert!(refused(&cluster, &["node", "undrain", "athens"]).contains("node uncordon athens"));
    cluster.done(&["node", "uncordon", "athens"]);
    assert_eq!(node(&cluster, "athens")["goal"], "serve");
    // A live node with copies cannot be removed, nor declared lost.
    let why = refused(&cluster, &["node", "remove", "athens"]);
    assert!(why.contains("nothing was changed") && why.contains("drain it"), "{why}");
    assert!(refused(&cluster, &["node", "lost", "athens"]).contains("is alive"), "{why}");
    for verb in [&["node", "drain", "sparta"][..], &["node", "remove", "sparta"], &["node", "describe", "sparta"]] {
        assert_eq!(cluster.archon(verb).code, 3, "{verb:?}");
    }
    // The preview of a drain, and then the drain.
    let before = node(&cluster, "athens");
    let plan = cluster.json(&["node", "drain", "athens", "--dry-run"]).expect("a plan");
    assert_eq!(plan["drain"]["copies_moved"], before["copies_held"]);
    assert_eq!(node(&cluster, "athens")["goal"], "serve", "a dry run changes nothing");
    let told = cluster.done(&["node", "drain", "athens", "--wait", "--wait-timeout", "60s"]);
    assert!(told.contains("athens is empty"), "{told}");
    assert!(refused(&cluster, &["node", "uncordon", "athens"]).contains("node undrain athens"));
    cluster.wait_whole(3);
    let list = cluster.json(&["partition", "list"]).expect("partition list");
    assert!(!list.to_string().contains("\"athens\""), "{list}");
    // With three nodes left for three copies, none can be drained.
    let why = refused(&cluster, &["node", "drain", "cyrene", "--wait"]);
    assert!(why.contains("cyrene cannot be drained") && why.contains("only 2 nodes take replicas"), "{why}");
    assert!(refused(&cluster, &["node", "remove", "athens"]).contains("stop it before removing it"));
    assert!(cluster.take_node("athens").terminate(Duration::from_secs(60)).success());
    cluster.wait_node("athens", "failed");
    cluster.done(&["node", "remove", "athens"]);
    assert_eq!(cluster.archon(&["node", "describe", "athens"]).code, 3);
    // Its directory cannot join again, is refused at once, and leaves nothing behind.
    let listen = cluster.node_address("athens").to_owned();
    let data = cluster.node_data("athens");
    let mut again = cluster.spawn("again", &cluster.node_arguments("athens", &listen, &data));
    assert_eq!(again.wait_exit(TIMEOUT).code(), Some(4), "{}", again.log_tail(20));
    assert!(again.log().contains("was removed from this cluster"), "{}", again.log());
    assert_eq!(cluster.archon(&["node", "describe", "athens"]).code, 3);
    for number in 0..50 {
        assert_eq!(cluster.done(&["kv", "get", &format!("k/{number}")]), "v");
    }
    let events = cluster.done(&["events"]);
    for part in ["cordoned", "is being drained of", "drained: it holds no replicas", "removed"] {
        assert!(events.contains(part), "{part:?} is not in {events}");
    }
}

#[test]
fn partition_without_in_sync_copy_is_given_up_only_on_order() {
    let options = Options {
        coordinators: 1,
        nodes: vec!["athens"],
        partitions: 2,
        nodes_min: 1,
        replication: 1,
        ..Options::default()
    };
    let mut cluster = Cluster::start(EXE, &options);
    cluster.done(&["kv", "put", "k", "v"]);
    let partition = cluster.json(&["partition", "locate", "k"]).expect("locate")["partition"].to_string();
    // A table that could never have all its copies is refused: creation could not be undone.
    let why = refused(&cluster, &["table", "create", "wide", "--partitions", "2", "--replication", "3"]);
    assert!(why.contains("and there are 1;") && why.contains("--replication 1"), "{why}");
    // Programs get errors as a document as well.
    for (line, code, kind) in [
        (&["node", "describe", "sparta", "-o", "json"][..], 3, "not_found"),
        (&["partition", "force-leader", &partition, "-o", "json"], 4, "refused"),
        (&["table", "create", "-o", "json"], 2, "invalid_argument"),
    ] {
        let ran = cluster.archon(line);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        assert_eq!((ran.code, document["error"]["kind"].as_str()), (code, Some(kind)), "{document}");
        assert!(!document["error"]["message"].as_str().unwrap_or("").is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
    // While a copy serves, no data needs to be lost.
    let why = refused(&cluster, &["partition", "force-leader", &partition, "--accept-data-loss"]);
    assert!(why.contains("no data needs to be lost"), "{why}");
    cluster.take_node("athens").kill();
    cluster.wait_node("athens", "failed");
    let status = cluster.json(&["status"]).expect("status");
    assert_eq!(status["partitions_online"], 0, "{status}");
    let why = wait_for("the lease of the killed node to be over", TIMEOUT, || {
        let ran = cluster.archon(&["partition", "force-leader", &partition]);
        check(ran.code == 4, || format!("{}: {}", ran.code, ran.stderr)).map(|()| ran.stderr)
    })
    .0;
    for part in ["DataLoss", "all its data is lost", "athens returns", "cut off", "--accept-data-loss"] {
        assert!(why.contains(part), "{part:?} is not in {why}");
    }
    assert!(refused(&cluster, &["node", "lost", "athens"]).contains("last in-sync replica of 2 partitions"));
    let described = cluster.json(&["partition", "describe", &partition]).expect("describe");
    assert_eq!((&described["status"], &described["leader"]), (&json!("unavailable"), &Value::Null), "{described}");
    assert_eq!(described["copies"][0]["node_status"], "failed");
    let athens = json!([{"node_id": described["copies"][0]["node_id"], "node": "athens"}]);
    assert_eq!(described["force_leader"]["lose_nothing"], athens);
    for (line, code) in [
        (&["partition", "describe", "2"][..], 3),
        (&["partition", "describe", "0", "--table", "nowhere"], 3),
        (&["partition", "force-leader", "0", "--node", "sparta", "--accept-data-loss"], 3),
        (&["partition", "force-leader", "0", "--node", "athens", "--accept-data-loss"], 4),
    ] {
        assert_eq!(cluster.archon(line).code, code, "{line:?}");
    }
    // Another node takes the partition over, empty.
    cluster.start_node("byzantium");
    cluster.wait_node("byzantium", "alive");
    cluster.done(&["partition", "force-leader", &partition, "--accept-data-loss"]);
    wait_for("the empty partition to be served", TIMEOUT, || {
        let ran = cluster.archon(&["kv", "get", "k", "--timeout", "2s"]);
        check(ran.code == 3, || format!("{}: {}{}", ran.code, ran.stdout, ran.stderr))
    });
    cluster.done(&["kv", "put", "k", "again"]);
    assert!(cluster.done(&["events"]).contains("data loss accepted"));
}

#[test]
fn every_operation_works_from_the_command_line() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, partitions: 4, ..Options::replicated() });
    // Compare and set: one of two creators of a key succeeds, and only the revision that was read is overwritten.
    cluster.done(&["kv", "cas", "leader", "alice", "--revision", "0"]);
    assert!(refused(&cluster, &["kv", "cas", "leader", "bob", "--revision", "0"]).contains("exists already"));
    let revision = cluster.json(&["kv", "get", "leader"]).expect("get")["revision"].to_string();
    let wrong = format!("{revision}7");
    assert!(refused(&cluster, &["kv", "cas", "leader", "bob", "--revision", &wrong]).contains("nothing was changed"));
    assert!(refused(&cluster, &["kv", "cas", "nobody", "bob", "--revision", "7"]).contains("is absent"));
    cluster.done(&["kv", "cas", "leader", "carol", "--revision", &revision]);
    assert_eq!(cluster.done(&["kv", "get", "leader"]), "carol");
    // Counters.
    assert_eq!(cluster.done(&["kv", "incr", "n"]), "1\n");
    assert_eq!(cluster.done(&["kv", "incr", "n", "-5"]), "-4\n");
    assert_eq!(cluster.json(&["kv", "incr", "n", "44"]).expect("incr")["value"], "40");
    assert!(refused(&cluster, &["kv", "incr", "leader"]).contains("decimal integer"));
    let largest = i64::MAX.to_string();
    assert!(refused(&cluster, &["kv", "incr", "n", &largest]).contains("nothing was changed"));
    assert_eq!(cluster.done(&["kv", "get", "n"]), "40");
    // A batch: each operation separately, in the order of the lines; the first failure determines the exit code.
    let file = cluster.directory().join("batch.txt");
    let lines = "put --a 1\nput b \"two words\"\nincr n 2\nget leader\n# nothing\ncas leader 1 x\nget absent\n";
    std::fs::write(&file, lines).expect("written");
    let ran = cluster.archon(&["kv", "batch", &file.display().to_string(), "-o", "json"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("1 of 6 operations failed; the first, in line 6"), "{}", ran.stderr);
    let results: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(results[2]["value"], "42");
    assert_eq!((&results[3]["value"], &results[4]["error"]["kind"]), (&json!("carol"), &json!("condition_failed")));
    assert_eq!((&results[5]["ok"], &results[5]["value"]), (&json!(true), &Value::Null));
    assert_eq!(cluster.done(&["kv", "get", "b"]), "two words");
    // Scans, page by page, and with a prefix that looks like a flag.
    let found = cluster.json(&["kv", "scan", "--prefix", "--"]).expect("scan");
    assert_eq!(found, json!([{"key": "--a", "value": "1", "revision": found[0]["revision"]}]));
    let first = cluster.archon(&["kv", "scan", "--limit", "2", "-o", "json"]);
    assert!(first.stderr.contains("--after \"b\""), "{}", first.stderr);
    let rest = cluster.json(&["kv", "scan", "--after", "b"]).expect("scan");
    let keys: Vec<&str> = rest.as_array().into_iter().flatten().filter_map(|entry| entry["key"].as_str()).collect();
    assert_eq!(keys, ["leader", "n"]);
    assert_eq!(cluster.archon(&["kv", "del", "b"]).code, 0);
    assert_eq!(cluster.archon(&["kv", "del", "b"]).code, 3);
}

/// A node without a successor for its leaderships does not wait for its whole time-out, and a clean stop logs no error.
#[test]
fn whole_cluster_stop_logs_no_error_and_waits_for_no_quorum() {
    let mut cluster = Cluster::start(EXE, &Options { partitions: 4, ..Options::replicated() });
    cluster.done(&["kv", "put", "k", "v"]);
    let mut coordinators: Vec<_> = (0..3).map(|index| cluster.take_coordinator(index)).collect();
    coordinators.iter().for_each(|coordinator| coordinator.ask_to_end());
    for coordinator in &mut coordinators {
        assert!(coordinator.wait_exit(TIMEOUT).success(), "{}", coordinator.log_tail(20));
        let log = coordinator.log();
        assert!(!log.contains("ERROR"), "{log}");
    }
    let mut node = cluster.take_node("athens");
    node.ask_to_end();
    assert!(node.wait_exit(TIMEOUT).success(), "{}", node.log_tail(20));
    assert!(node.log().contains("no coordinator takes the leaderships"), "{}", node.log_tail(20));
}
