//! Settings of a running cluster, changed by the command line on real processes.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn ends(cluster: &Cluster, arguments: &[&str], code: i32) -> String {
    let ran = cluster.archon(arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{arguments:?}: {}", ran.stderr);
    ran.stderr
}

/// Returns a setting from `config show`.
fn setting(cluster: &Cluster, name: &str) -> Value {
    let shown = cluster.json(&["config", "show"]).expect("config show");
    let all = shown["settings"].as_array().expect("a list");
    all.iter().find(|setting| setting["setting"] == name).cloned().unwrap_or_else(|| panic!("no {name} in {shown}"))
}

#[test]
fn setting_applies_from_commit_and_survives_restarts() {
    let nodes = vec!["athens", "byzantium", "cyrene", "ephesus"];
    let options = Options { nodes, partitions: 4, nodes_min: 3, ..Options::replicated() };
    let mut cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);

    // Invalid settings are refused, and nothing changes.
    let version = cluster.json(&["config", "show"]).expect("config show")["settings_version"].clone();
    assert!(ends(&cluster, &["config", "set", "lease_ms=900"], 4).contains("cannot be changed while the cluster runs"));
    let both = ["config", "set", "copies_per_node_max=3", "failure_timeout_ms=1110"];
    assert!(ends(&cluster, &both, 2).contains("1.01 × 1000 ms + 100 ms = 1110 ms"), "all or none");
    assert!(ends(&cluster, &["config", "set", "replace_after=1"], 2).contains("did you mean `replace_after_ms`?"));
    assert!(ends(&cluster, &["config", "set", "replace_after_ms=soon"], 2).contains("from 1 to 604800000"));
    assert!(ends(&cluster, &["config", "set", "min_nodes=2", "--if-version", "1"], 4).contains("look again"));
    let tried = cluster.done(&["config", "set", "replace_after_ms=3000", "--dry-run"]);
    assert!(tried.contains("would change replace_after_ms from 300000 to 3000"), "{tried}");
    let shown = cluster.json(&["config", "show"]).expect("config show");
    assert_eq!(shown["settings_version"], version);

    // Every node learns of a longer time-out between replicas, and a failed node is replaced after three seconds now.
    let wanted = ["config", "set", "replication_timeout_ms=1500", "replace_after_ms=3000"];
    let changed = cluster.done(&wanted);
    assert!(changed.contains("changed replication_timeout_ms from 1000 to 1500"), "{changed}");
    wait_for("every node to hear of it", TIMEOUT, || {
        let deaf = options.nodes.iter().find(|name| !cluster.node(name).log().contains("replication_timeout_ms=1500"));
        check(deaf.is_none(), || format!("{deaf:?} has not"))
    });
    let held = cluster.json(&["node", "list"]).expect("node list");
    let busy = held.as_array().expect("a list").iter().find(|node| node["copies_held"] != json!(0));
    let victim = busy.and_then(|node| node["node"].as_str()).expect("a node with copies").to_owned();
    cluster.take_node(&victim).kill();
    let elsewhere = |copy: &Value| copy["node"] != victim.as_str() && copy["state"] == "live";
    cluster.wait_partitions("its copies to be made anew elsewhere", |rows| {
        let live = |row: &Value| row["copies"].as_array().map_or(0, |all| all.iter().filter(|c| elsewhere(c)).count());
        rows.iter().all(|row| live(row) == 3)
    });
    assert!(cluster.done(&["events"]).contains("replace_after_ms from 300000 to 3000"));

    // It is in the log, independent of the flags of later starts.
    cluster.kill_everything();
    cluster.start_everything();
    wait_for("the settings to be told again", TIMEOUT, || {
        let ran = cluster.archon(&["config", "show", "-o", "json"]);
        check(ran.code == 0, || ran.stderr.clone())
    });
    assert_eq!(setting(&cluster, "replace_after_ms")["current"], 3_000);
    let (lease, timeout) = (setting(&cluster, "lease_ms"), setting(&cluster, "failure_timeout_ms"));
    assert_eq!((&lease["changeable"], &timeout["changeable"]), (&json!(false), &json!(true)));
}

#[test]
fn node_setting_survives_restart_until_another_flag() {
    let mut cluster = Cluster::start(EXE, &Options { coordinators: 1, partitions: 4, ..Options::replicated() });
    cluster.wait_whole(3);
    let athens = |cluster: &Cluster| {
        let node = cluster.json(&["node", "describe", "athens"]).expect("node describe");
        (node["weight"].clone(), node["partitions_max"].clone(), node["zone"].clone())
    };
    assert!(ends(&cluster, &["node", "set", "athens"], 2).contains("--weight, --partitions-max or --zone"));
    ends(&cluster, &["node", "set", "athens", "--partitions-max", "0"], 2);
    ends(&cluster, &["node", "set", "sparta", "--weight", "5"], 3);
    let set = ["node", "set", "athens", "--weight", "50", "--partitions-max", "9", "--zone", "east"];
    assert!(cluster.done(&set).contains("athens has weight 50, at most 9 replicas, zone east"));
    assert!(cluster.done(&set).contains("has already"), "the same again changes nothing");
    let all = (json!(50), json!(9), json!("east"));
    assert_eq!(athens(&cluster), all);

    assert!(cluster.take_node("athens").terminate(Duration::from_secs(60)).success());
    cluster.wait_node("athens", "failed");
    cluster.start_node("athens");
    cluster.wait_node("athens", "alive");
    assert_eq!(athens(&cluster), all);

    let (listen, data) = (cluster.node_address("athens").to_owned(), cluster.node_data("athens"));
    assert!(cluster.take_node("athens").terminate(Duration::from_secs(60)).success());
    cluster.wait_node("athens", "failed");
    let mut arguments = cluster.node_arguments("athens", &listen, &data);
    arguments.extend(["--weight".to_owned(), "70".to_owned()]);
    let _started = cluster.spawn("athens-again", &arguments);
    cluster.wait_node("athens", "alive");
    assert_eq!(athens(&cluster), (json!(70), json!(9), json!("east")), "what the flags do not say anew stays");
    assert!(cluster.done(&["events"]).contains("to weight 50, at most 9 replicas, zone east"));
}

#[test]
fn replication_of_a_table_changes_under_load() {
    let cluster =
        Cluster::start(EXE, &Options { coordinators: 1, partitions: 4, replication: 1, ..Options::replicated() });
    cluster.wait_whole(1);
    cluster.put_all("default", (0..20).map(|number| (format!("k/{number}"), "before")));
    let many = ends(&cluster, &["table", "alter", "default", "--replication", "4"], 4);
    assert!(many.contains("and there are 3;") && many.contains("--replication 3"), "{many}");
    ends(&cluster, &["table", "alter", "orders", "--replication", "2"], 3);
    ends(&cluster, &["table", "alter", "default", "--replication", "0"], 2);

    let more = ["table", "alter", "default", "--replication", "3"];
    assert!(cluster.done(&more).contains("table default wants 3 replicas of each partition"));
    // No write waits for copies that are not in sync yet.
    for number in 0..20 {
        cluster.done(&["kv", "put", &format!("k/{number}"), "after"]);
    }
    cluster.wait_whole(3);
    assert!(cluster.done(&more).contains("wants already"));
    let fewer = ["table", "alter", "default", "--replication", "2"];
    assert!(cluster.done(&fewer).contains("wants 2 replicas"));
    cluster.wait_whole(2);
    for number in 0..20 {
        assert_eq!(cluster.done(&["kv", "get", &format!("k/{number}")]), "after");
    }
    let events = cluster.done(&["events"]);
    assert!(events.contains("replication changed to 3, was 1"), "{events}");
}
