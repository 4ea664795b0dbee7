//! Coordinators join and leave while clients work: by the command line, on real processes.

use crate::EXE;
use archon_integration_tests::{Cluster, Load, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until no change is in progress and the members, with their votes, are as `wanted`.
fn members(cluster: &Cluster, what: &str, wanted: &[(u64, bool)]) {
    cluster.wait_json(what, TIMEOUT, &["quorum", "list"], |quorum| {
        let listed = quorum["coordinators"].as_array().into_iter().flatten();
        let found: Vec<(u64, bool)> = listed
            .filter_map(|member| Some((member["coordinator_id"].as_u64()?, !member["learner"].as_bool()?)))
            .collect();
        found == wanted && quorum["pending"].is_null()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn all_initial_coordinators_can_be_replaced() {
    let mut cluster = Cluster::start(EXE, &Options::replicated());
    cluster.wait_whole(3);
    // It gets the first three addresses only, as the nodes do.
    let client = cluster.client().build().await.expect("a client");
    let load = Load::start(&client, "quorum", 4);
    for (old, new) in [(1u64, 4u64), (2, 5), (3, 6)] {
        cluster.join_coordinator(&["--learner"]);
        let voters = [old, old + 1, old + 2].map(|id| (id, true));
        members(&cluster, "the newcomer to be a learner", &[&voters[..], &[(new, false)]].concat());
        let told = cluster.json(&["quorum", "replace", &old.to_string(), &new.to_string(), "--wait"]);
        let told = told.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(told["changed"], json!(true), "{told}");
        // A leader that was just elected has not heard all others yet.
        let one = |quorum: &Value| quorum["spare_voters"] == json!(1);
        cluster.wait_json("one voter to spare", TIMEOUT, &["quorum", "list"], one);
        let ended = cluster.take_coordinator(old as usize - 1).wait_exit(TIMEOUT);
        assert_eq!(ended.code(), Some(4), "a restart is of no use to one that was removed");
    }
    members(&cluster, "three others", &[(4, true), (5, true), (6, true)]);
    let report = load.stop().await;
    report.assert_no_failure();
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    println!("longest gap of a writer: {:?} over {} operations", report.longest_gap, report.operations);
    // The nodes have learned the new addresses by now: one that was away comes back although its configured addresses
    // are gone.
    cluster.take_node("cyrene").kill();
    cluster.wait_node("cyrene", "failed");
    cluster.start_node("cyrene");
    cluster.wait_whole(3);
    let listed = cluster.json(&["quorum", "list"]).expect("quorum list");
    assert_eq!(listed["retired_ids"], json!([1, 2, 3]));
    let again = cluster.archon(&["quorum", "remove", "1"]);
    assert!(again.code == 3 && again.stderr.contains("the members are 4, 5, 6"), "{again:?}");
    let events = cluster.done(&["events"]);
    assert!(events.contains("coordinator 6 replaces coordinator 3; the voters are"), "{events}");
}

#[test]
fn replacement_survives_a_kill_in_each_step() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    cluster.join_coordinator(&["--learner"]);
    members(&cluster, "a learner", &[(1, true), (2, true), (3, true), (4, false)]);
    let leader = cluster.wait_leader().0;
    let old = (leader + 1).to_string();
    // The leader is to be replaced and is killed at once: its successor carries it out.
    cluster.done(&["quorum", "replace", &old, "4"]);
    cluster.take_coordinator(leader).kill();
    let left: Vec<(u64, bool)> = (1..=4).filter(|id| *id != leader as u64 + 1).map(|id| (id, true)).collect();
    members(&cluster, "the others to carry it out", &left);
    // It comes back without knowing that it was removed.
    cluster.start_coordinator(leader);
    let ended = cluster.take_coordinator(leader).wait_exit(TIMEOUT);
    assert_eq!(ended.code(), Some(4));
    // A newcomer that is killed before it has the log, and restarts, is admitted all the same.
    let newcomer = cluster.join_coordinator(&[]);
    cluster.take_coordinator(newcomer).kill();
    cluster.start_coordinator(newcomer);
    members(&cluster, "the newcomer to vote", &[&left[..], &[(5, true)]].concat());
    let told = cluster.done(&["quorum", "list"]);
    assert!(told.contains("yes"), "{told}");
    // Two concurrent operators: one is told of the other, or both want the same.
    let spare = cluster.archon(&["quorum", "remove", "5", "--wait"]);
    assert_eq!(spare.code, 0, "{}", spare.stderr);
    members(&cluster, "three again", &left);
    assert_eq!(cluster.archon(&["quorum", "cancel"]).code, 4, "there is nothing to take back");
    assert!(cluster.done(&["quorum", "transfer-leader", "4"]).contains("coordinator 4 leads"));
}

/// Stops all coordinators, as before their machines get other addresses.
fn stop_coordinators(cluster: &mut Cluster) {
    for index in 0..3 {
        assert!(cluster.take_coordinator(index).terminate(TIMEOUT).success());
    }
}

/// Waits until the log records each coordinator's address.
fn recorded(cluster: &Cluster) {
    wait_for("the new addresses to be recorded", TIMEOUT, || {
        let quorum = cluster.json(&["quorum", "list"])?;
        let listed = quorum["coordinators"].as_array().into_iter().flatten();
        let found: Vec<&str> = listed.filter_map(|member| member["address"].as_str()).collect();
        let events = cluster.done(&["events"]);
        let told = cluster.coordinator_addresses().iter().all(|address| events.contains(&format!("at {address}")));
        check(found == cluster.coordinator_addresses() && quorum["pending"].is_null() && told, || {
            format!("{quorum}; {events}")
        })
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinators_with_new_addresses_need_no_recovery() {
    let mut cluster = Cluster::start(EXE, &Options::replicated());
    cluster.wait_whole(3);
    let client = cluster.client().build().await.expect("a client");
    client.put("before", "them").await.expect("written");
    let quorum = cluster.json(&["quorum", "list"]).expect("a quorum");
    stop_coordinators(&mut cluster);
    let begun = Instant::now();
    cluster.move_coordinators(|_, all| all.to_vec());
    cluster.wait_leader();
    println!("{:?} until one leads", begun.elapsed());
    for name in cluster.node_names() {
        assert!(cluster.take_node(&name).terminate(TIMEOUT).success());
        cluster.start_node_told_anew(&name);
    }
    recorded(&cluster);
    cluster.wait_whole(3);
    println!("{:?} until all is served", begun.elapsed());
    let client = cluster.client().build().await.expect("a client");
    let found = client.get("before").await.expect("read").map(|found| found.value.to_vec());
    assert_eq!(found.as_deref(), Some(&b"them"[..]));
    let now = cluster.json(&["quorum", "list"]).expect("a quorum");
    for same in ["cluster", "generation", "retired_ids"] {
        assert_eq!(now[same], quorum[same], "{same}");
    }
    // The recorded address counts from now on: the next start needs no flag.
    stop_coordinators(&mut cluster);
    for index in 0..3 {
        cluster.start_coordinator(index);
    }
    cluster.wait_leader();
}

#[test]
fn wrong_peer_addresses_are_reported() {
    let mut cluster = Cluster::start(EXE, &Options { nodes: Vec::new(), ..Options::default() });
    stop_coordinators(&mut cluster);
    // Each gets its own correct address, and for each other one the address of the third.
    cluster.move_coordinators(|index, all| {
        let said = |of: usize| all[if of == index { of } else { 3 - of - index }].clone();
        (0..3).map(said).collect()
    });
    wait_for("it to be told", TIMEOUT, || {
        let status = cluster.archon(&["--timeout", "2s", "status"]);
        let told = format!("{}{}", status.stdout, status.stderr);
        check(status.code == 5 && told.contains("where --peers says") && told.contains("the message is for"), || told)
    });
    wait_for("it to be logged", TIMEOUT, || {
        let logged = cluster.coordinator(0).log_tail(60);
        check(logged.contains("answers neither at"), || logged)
    });
    stop_coordinators(&mut cluster);
    cluster.move_coordinators(|_, all| all.to_vec());
    cluster.wait_leader();
    recorded(&cluster);
}
