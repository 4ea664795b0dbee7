//! Operators' orders on partitions and nodes, and the cluster check, through the command line on real processes.

use crate::EXE;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::wait_for;
use serde_json::Value;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn four_nodes() -> Cluster {
    let nodes = vec!["athens", "byzantium", "cyrene", "ephesus"];
    let cluster = Cluster::start(EXE, &Options { nodes, partitions: 4, nodes_min: 4, ..Options::replicated() });
    cluster.wait_whole(3);
    cluster
}

fn partition(cluster: &Cluster, id: &str) -> Value {
    cluster.json(&["partition", "describe", id]).expect("partition describe")
}

/// Returns the exit code of a check, the codes of its alerts and its output.
fn check(cluster: &Cluster, arguments: &[&str]) -> (i32, Vec<String>, String) {
    let ran = cluster.archon(&[&["check", "-o", "json"], arguments].concat());
    let found: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let codes = found["alerts"].as_array().into_iter().flatten().filter_map(|alert| alert["code"].as_str());
    (ran.code, codes.map(str::to_owned).collect(), ran.stdout.clone())
}

fn holds(partition: &Value, node: &str) -> bool {
    partition["copies"].as_array().into_iter().flatten().any(|copy| copy["node"] == node)
}

#[test]
fn partition_is_bumped_taken_offline_and_barred() {
    let cluster = four_nodes();
    cluster.done(&["kv", "put", "k", "v"]);
    let id = cluster.json(&["partition", "locate", "k"]).expect("locate")["partition"].to_string();
    assert_eq!(check(&cluster, &[]), (0, vec![], check(&cluster, &[]).2));

    let before = partition(&cluster, &id);
    cluster.done(&["partition", "bump", &id, "--why", "stuck"]);
    wait_for("the next epoch", TIMEOUT, || {
        let now = partition(&cluster, &id);
        let renewed = now["epoch"].as_u64() > before["epoch"].as_u64() && now["status"] == "online";
        if renewed { Ok(()) } else { Err(now.to_string()) }
    });
    assert_eq!(partition(&cluster, &id)["leader"], before["leader"]);
    assert_eq!(cluster.done(&["kv", "get", "k"]), "v");

    cluster.done(&["partition", "offline", &id, "--why", "poisoned"]);
    wait_for("nobody to lead it", TIMEOUT, || {
        let now = partition(&cluster, &id);
        if now["status"] == "offline" { Ok(()) } else { Err(now.to_string()) }
    });
    let now = partition(&cluster, &id);
    assert_eq!((&now["leader"], now["copies"].as_array().map(Vec::len)), (&Value::Null, Some(3)), "{now}");
    assert!(now["reasons"][0]["message"].as_str().is_some_and(|text| text.contains("poisoned")), "{now}");
    let refused = cluster.archon(&["--timeout", "500ms", "kv", "get", "k"]);
    assert!(refused.code == 5 && refused.stderr.contains("taken offline"), "{refused:?}");
    assert_eq!(cluster.archon(&["partition", "bump", &id]).code, 4, "it has no leader");
    assert_eq!(check(&cluster, &[]).0, 0, "somebody wants it so");
    let (code, alerts, text) = check(&cluster, &["--held-for", "1ms"]);
    assert!(code == 10 && alerts.contains(&"held_too_long".to_owned()), "{text}");
    cluster.done(&["partition", "online", &id]);
    assert_eq!(cluster.done(&["kv", "get", "k"]), "v");

    let leader = partition(&cluster, &id)["leader"].as_str().expect("a leader").to_owned();
    cluster.done(&["partition", "bar", &id, "--node", &leader, "--why", "slow"]);
    wait_for("the barred copy to go", TIMEOUT, || {
        let now = partition(&cluster, &id);
        let whole = now["status"] == "online" && now["copies"].as_array().map(Vec::len) == Some(3);
        if whole && !holds(&now, &leader) { Ok(()) } else { Err(now.to_string()) }
    });
    assert_eq!(partition(&cluster, &id)["bars"][0]["why"], "slow");
    assert_eq!(cluster.done(&["kv", "get", "k"]), "v");
    let other = partition(&cluster, &id)["leader"].as_str().expect("a leader").to_owned();
    let refused = cluster.archon(&["node", "bar", &other, "--table", "default"]);
    assert!(refused.code == 4 && refused.stderr.contains("only 2 nodes may hold them"), "{refused:?}");
    cluster.done(&["partition", "unbar", &id, "--node", &leader]);
    for (wrong, code) in [
        (&["partition", "offline", "99"][..], 3),
        (&["partition", "bar", "0", "--node", "sparta"], 3),
        (&["node", "bar", "athens", "--table", "none"], 3),
        (&["node", "resume", "athens"], 4),
        (&["node", "maintain", "athens", "--for", "1ms"], 2),
        (&["partition", "bump", "0", "--why", "a\u{1b}[31m"], 2),
    ] {
        assert_eq!(cluster.archon(wrong).code, code, "{wrong:?}");
    }
    let events = cluster.done(&["events"]);
    for part in [
        "was requested: stuck",
        "taken offline: poisoned",
        "brought online",
        "is excluded from it: slow",
        "no longer \
          excluded",
    ] {
        assert!(events.contains(part), "{part:?} is not in {events}");
    }
}

#[test]
fn node_in_maintenance_restarts_without_copy_replacement() {
    let mut cluster = four_nodes();
    let node = |cluster: &Cluster| cluster.json(&["node", "describe", "athens"]).expect("node describe");
    cluster.done(&["config", "set", "replace_after_ms=1500"]);
    let held = node(&cluster)["copies_held"].clone();
    cluster.done(&["node", "maintain", "athens", "--for", "10m", "--why", "kernel"]);
    wait_for("its leaderships to leave", TIMEOUT, || {
        let now = node(&cluster);
        if now["partitions_led"] == 0 { Ok(()) } else { Err(now.to_string()) }
    });
    cluster.take_node("athens").kill();
    cluster.wait_node("athens", "failed");
    assert_eq!(check(&cluster, &[]).0, 0, "as it was ordered: {:?}", check(&cluster, &[]));
    // Another stopped node is replaced meanwhile, so the time to replace athens has passed.
    cluster.take_node("byzantium").kill();
    cluster.wait_node("byzantium", "failed");
    // Until the leaders have dropped it, partitions take no writes, which is an alarm.
    wait_for("a failed node to be a warning", TIMEOUT, || {
        let (code, _, text) = check(&cluster, &[]);
        if code == 10 { Ok(()) } else { Err(text) }
    });
    let replaced = |cluster: &Cluster, name: &str| {
        let events = cluster.json(&["events"]).expect("events").to_string();
        events.matches(&format!("{name}, which failed")).count()
    };
    wait_for("a copy of the other one to be replaced", TIMEOUT, || match replaced(&cluster, "byzantium") {
        0 => Err("none is".to_owned()),
        _ => Ok(()),
    });
    cluster.start_node("byzantium");
    cluster.wait_node("byzantium", "alive");
    assert_eq!((node(&cluster)["copies_held"].clone(), replaced(&cluster, "athens")), (held, 0));
    cluster.start_node("athens");
    cluster.wait_node("athens", "alive");
    cluster.wait_whole(3);
    assert_eq!(node(&cluster)["partitions_led"], 0, "still in maintenance");
    cluster.done(&["node", "resume", "athens"]);
    assert_eq!(node(&cluster)["goal"], "serve");
    cluster.done(&["node", "maintain", "athens", "--for", "1s"]);
    wait_for("the maintenance to end by itself", TIMEOUT, || {
        let now = node(&cluster);
        if now["goal"] == "serve" { Ok(()) } else { Err(now.to_string()) }
    });
}

#[test]
fn check_is_an_alarm_without_a_leader() {
    let mut cluster = four_nodes();
    // Until then a missing coordinator holds the protocol back, which is reported as well.
    cluster.wait_protocol(2);
    let (code, alerts, text) = check(&cluster, &["--min-members", "5"]);
    assert_eq!((code, &alerts[..]), (11, &["too_few_members".to_owned()][..]), "{text}");
    cluster.take_coordinator(0).kill();
    wait_for("the missing coordinator to be told", TIMEOUT, || {
        let (code, alerts, text) = check(&cluster, &[]);
        if code == 10 && alerts == ["coordinator_unreachable"] { Ok(()) } else { Err(text) }
    });
    cluster.take_coordinator(1).kill();
    let (code, alerts, text) = check(&cluster, &["--timeout", "2s"]);
    assert_eq!((code, &alerts[..]), (11, &["no_quorum".to_owned()][..]), "{text}");
}
