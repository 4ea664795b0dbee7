//! Heartbeats that nodes relay for each other, on real processes, and the updates on their answers.

use crate::EXE;
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::options::LONG_LEASES;
use archon_integration_tests::relaying::{
    CARRIED, NODES, TIMEOUT, assert_no_lease_lapsed, count, options, relays, start, start_without, wait_listed,
    wait_relayed,
};
use archon_integration_tests::{Cluster, Network, Options, Room};
use archon_testkit::{check, skipped, wait_for};
use std::time::{Duration, Instant};

/// Returns these options in a calm room: whether a heartbeat or a push brings an update is a matter of time.
fn alone(options: Options) -> Options {
    Options { room: Room::Calm, ..options }
}

#[test]
fn killed_relay_costs_no_lease() {
    kill_a_relay(start(EXE, &options(Network::Loopback)));
}

#[test]
fn nodes_use_relays_with_tls() {
    kill_a_relay(start(EXE, &Options { tls: true, ..options(Network::Loopback) }));
}

fn kill_a_relay(mut cluster: Cluster) {
    wait_relayed(&cluster, &NODES, 5.0);
    let relays = relays(&cluster);
    wait_listed(&cluster, &relays);
    let victim = relays[0];
    println!("relays: {relays:?}; killed: {victim}");
    cluster.take_node(victim).kill();
    cluster.wait_node(victim, "failed");
    let left: Vec<&str> = NODES.into_iter().filter(|node| *node != victim).collect();
    wait_relayed(&cluster, &left, 5.0);
    assert_no_lease_lapsed(&cluster, &left);
    // Without relays, every member sends directly.
    cluster.done(&["config", "set", "relays_from=0"]);
    let sum = |series| left.iter().map(|node| count(&cluster, node, series)).sum::<Result<f64, String>>();
    let look = || Ok::<_, String>((sum("archon_node_heartbeats_total")?, sum(CARRIED)?));
    let (mut beats, mut carried) = look().expect("counts");
    wait_for("heartbeats of which none is carried", TIMEOUT, || {
        let (beats_now, carried_now) = look()?;
        let (sent, passed_on) = (beats_now - beats, carried_now - carried);
        if sent >= 30.0 {
            (beats, carried) = (beats_now, carried_now);
        }
        check(sent >= 30.0 && passed_on == 0.0, || format!("{sent} heartbeats, {passed_on} carried"))
    });
    wait_listed(&cluster, &[]);
    assert_no_lease_lapsed(&cluster, &left);
}

/// Its streams stay open, and carry nothing.
#[test]
fn paused_relay_costs_no_other_lease() {
    let cluster = start(EXE, &options(Network::Loopback));
    wait_relayed(&cluster, &NODES, 5.0);
    let relays = relays(&cluster);
    let (victim, other) = (relays[0], relays[1]);
    wait_listed(&cluster, &relays);
    cluster.node(victim).pause();
    cluster.wait_node(victim, "failed");
    let left: Vec<&str> = NODES.into_iter().filter(|node| *node != victim).collect();
    wait_relayed(&cluster, &left, 5.0);
    // With three nodes left two relay again: the other one, and another.
    let what = format!("members to show another relay, while {other} relays on");
    cluster.wait_json(&what, TIMEOUT, &["node", "list"], |listed| {
        let mut via = listed.as_array().into_iter().flatten().filter(|row| row["status"] == "alive");
        via.all(|row| row["via"] != victim)
    });
    assert_no_lease_lapsed(&cluster, &left);
    cluster.node(victim).resume();
    cluster.wait_node(victim, "alive");
    assert_no_lease_lapsed(&cluster, &left);
}

#[test]
fn new_coordinator_leader_hears_all_nodes_through_relays() {
    let mut cluster = start(EXE, &options(Network::Loopback));
    wait_relayed(&cluster, &NODES, 5.0);
    let (leader, _) = cluster.wait_leader();
    cluster.take_coordinator(leader).kill();
    cluster.wait_leader();
    wait_relayed(&cluster, &NODES, 5.0);
    for node in NODES {
        cluster.wait_node(node, "alive");
    }
}

/// Whether it relays itself or not: its own relay reports that no coordinator answers, and the other one reaches one.
#[test]
fn node_cut_off_from_coordinators_lives_by_a_relay() {
    if !Network::Namespaces.available() {
        return skipped("no node is cut off from the coordinators: that needs root and network namespaces");
    }
    let mut cluster = start(EXE, &options(Network::Namespaces));
    for victim in NODES {
        wait_for("its heartbeats to be carried", TIMEOUT, || {
            let log = cluster.node(victim).log();
            let last = log.lines().rev().find(|line| line.contains("heartbeats"));
            let last = last.unwrap_or_default();
            check(last.contains("are carried by a relay"), || last.to_owned())
        });
        println!("cut off from all coordinators: {victim}");
        let logged = NODES.map(|node| (node, cluster.node(node).log().len()));
        for coordinator in [0, 1, 2].map(coordinator_name) {
            cluster.links().cut_both(victim, &coordinator);
        }
        // Longer than the failure time-out.
        let time = Duration::from_millis(LONG_LEASES.failure_timeout_ms * 6 / 5);
        cluster.holds_for(&format!("{victim} to be alive"), time, &["node", "list"], |nodes| {
            let row = nodes.as_array().and_then(|rows| rows.iter().find(|row| row["node"] == victim));
            row.is_some_and(|row| row["status"] == "alive")
        });
        // Neither its own lease lapsed, nor those of the members it carries, if any.
        for (node, before) in logged {
            let log = cluster.node(node).log();
            assert!(!log.get(before..).unwrap_or_default().contains("lease lapsed"), "{node}: {log}");
        }
        cluster.links().mend_everything();
    }
}

const TABLE_VERSION: &str = "archon_node_table_version";
const PUSHES: &str = "archon_coordinator_pushes_total";
const NEWS: &str = "archon_coordinator_news_total";

/// Returns a metric summed over all coordinators.
fn coordinators_count(cluster: &Cluster, series: &str) -> f64 {
    [0, 1, 2].map(coordinator_name).iter().map(|name| count(cluster, name, series).unwrap_or(0.0)).sum()
}

/// Changes the row of a node, and returns the version that all nodes must reach.
fn change_a_row(cluster: &Cluster, node: &str, weight: usize) -> f64 {
    cluster.done(&["node", "set", node, "--weight", &weight.to_string()]);
    let status = cluster.json(&["status"]).expect("a status");
    status["table_version"].as_f64().expect("a version")
}

/// Waits until these nodes hold everything up to a version; returns the time taken.
fn wait_held(cluster: &Cluster, nodes: &[&str], version: f64) -> Duration {
    let begun = Instant::now();
    wait_for("all to hold it", TIMEOUT, || {
        let held: Result<Vec<f64>, String> = nodes.iter().map(|node| count(cluster, node, TABLE_VERSION)).collect();
        let held = held?;
        check(held.iter().all(|held| *held >= version), || format!("{held:?}, of {version}"))
    });
    begun.elapsed()
}

/// Changes rows one after the other, each once all nodes hold the previous one; returns the number of pushes, the
/// number of answers with updates, and the longest time.
fn change_rows(cluster: &Cluster, changes: usize) -> (f64, f64, Duration) {
    let counts = || (coordinators_count(cluster, PUSHES), coordinators_count(cluster, NEWS));
    let (pushes, news) = counts();
    let took =
        (0..changes).map(|change| wait_held(cluster, &NODES, change_a_row(cluster, NODES[change % 4], 50 + change)));
    let slowest = took.max().unwrap_or_default();
    let (pushes_now, news_now) = counts();
    (pushes_now - pushes, news_now - news, slowest)
}

#[test]
fn relayed_nodes_get_row_changes_on_heartbeat_answers() {
    let cluster = start_without(EXE, &alone(options(Network::Loopback)));
    let changes = 10;
    let (pushes, news, slowest) = change_rows(&cluster, changes);
    println!("without relays: {pushes} pushes, {news} answers with news, {slowest:?} at most");
    assert!(pushes >= 4.0 * changes as f64 && news == 0.0, "{pushes} pushes, {news} answers");
    cluster.done(&["config", "set", "relays_from=2"]);
    wait_relayed(&cluster, &NODES, 5.0);
    let (pushes, news, slowest) = change_rows(&cluster, changes);
    println!("with relays: {pushes} pushes, {news} answers with news, {slowest:?} at most");
    assert!(pushes <= changes as f64 && news >= 3.0 * changes as f64, "{pushes} pushes, {news} answers");
}

#[test]
fn nodes_take_table_updates_from_relays_with_tls() {
    let cluster = start(EXE, &Options { tls: true, ..alone(options(Network::Loopback)) });
    wait_relayed(&cluster, &NODES, 5.0);
    let (pushes, news, slowest) = change_rows(&cluster, 5);
    println!("by TLS: {pushes} pushes, {news} answers with news, {slowest:?} at most");
    assert!(pushes <= 5.0 && news >= 15.0, "{pushes} pushes, {news} answers");
    for node in NODES {
        assert_eq!(count(&cluster, node, "archon_node_news_refused_total"), Ok(0.0), "{node}");
    }
}

#[test]
fn killed_relay_does_not_withhold_a_change() {
    let mut cluster = start(EXE, &options(Network::Loopback));
    wait_relayed(&cluster, &NODES, 5.0);
    let victim = relays(&cluster)[0];
    let left: Vec<&str> = NODES.into_iter().filter(|node| *node != victim).collect();
    cluster.take_node(victim).kill();
    let version = change_a_row(&cluster, left[0], 77);
    let took = wait_held(&cluster, &left, version);
    println!("killed: {victim}; the others held the change after {took:?}");
    assert_no_lease_lapsed(&cluster, &left);
}
