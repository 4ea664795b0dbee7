//! Fenced incarnations, and the members that notify them, on real processes.

use crate::EXE;
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::relaying::{NODES, TIMEOUT, count, options, relays, start, start_without, wait_relayed};
use archon_integration_tests::{Cluster, Network, Options, Room};
use archon_testkit::{check, skipped, wait_for, wait_for_every};
use serde_json::Value;
use std::time::{Duration, Instant};

const TOLD_OVER: &str = "archon_node_lives_told_over_total";
/// Pause between two attempts to stop a node while a relay carries it: longer than an interval of heartbeats.
const PAUSE: Duration = Duration::from_millis(500);
/// Log texts of a node that was notified by a node, and of one that a coordinator refused.
const TOLD_BY_NODE: &str = " reports that this incarnation ended at version";
const TOLD_BY_COORDINATOR: &str = "the coordinator has ended this incarnation";

/// Pauses a node with `pause` until it has failed and others lead its partitions, and wakes it. Returns its log from then
/// until it has registered again, and the time taken. Meanwhile it serves the values of its successors, or nothing.
fn woken(
    cluster: &Cluster,
    victim: &str,
    pause: impl FnOnce(&Cluster, &str),
    before_waking: impl FnOnce(),
) -> (String, Duration) {
    let key = cluster.key_led_by(victim);
    cluster.done(&["kv", "put", &key, "before"]);
    pause(cluster, victim);
    cluster.wait_node(victim, "failed");
    cluster.done(&["kv", "put", &key, "after", "--timeout", "30s"]);
    before_waking();
    let (slept, registered) = (cluster.node(victim).log().len(), |log: &str| log.contains(" registered "));
    let (woken, took, read) = std::thread::scope(|scope| {
        // This read waits in the paused node's socket.
        let via = ["kv", "--via", cluster.node_address(victim), "get", &key, "--timeout", "5s"];
        let read = scope.spawn(move || cluster.archon_at("127.0.0.1:1", &via));
        let begun = Instant::now();
        cluster.node(victim).resume();
        let log = || cluster.node(victim).log().get(slept..).unwrap_or_default().to_owned();
        wait_for("it to register anew", TIMEOUT, || check(registered(&log()), log));
        (log(), begun.elapsed(), read.join().expect("a read ends"))
    });
    assert!(read.code != 0 || read.stdout == "after", "{victim} answered {:?}", read.stdout);
    (woken, took)
}

fn pause(cluster: &Cluster, victim: &str) {
    cluster.node(victim).pause();
}

/// Pauses a node while a relay carries it. On a busy machine relays answer late, and nodes send some heartbeats straight
/// to the coordinators: no relay could notify a node that is paused then.
fn pause_while_relayed(cluster: &Cluster, victim: &str) {
    let relay = |nodes: &Value| {
        let node = nodes.as_array().into_iter().flatten().find(|node| node["node"] == victim);
        node.is_some_and(|node| node["via"].is_string())
    };
    wait_for_every(PAUSE, "a relay to carry the heartbeats", TIMEOUT, || {
        cluster.node(victim).pause();
        let listed = cluster.asked(&["node", "list"]);
        if listed.as_ref().is_ok_and(relay) {
            return Ok(());
        }
        cluster.node(victim).resume();
        Err(format!("{listed:?}"))
    });
}

/// Returns how often relays notified members that their incarnation is fenced.
fn told_by(cluster: &Cluster, relays: &[&str]) -> f64 {
    let told = |relay: &&str| count(cluster, relay, "archon_node_relay_lives_over_total").unwrap_or(0.0);
    relays.iter().map(told).sum()
}

/// Waits until a relay notified a member, once the coordinators have fenced it. Returns false after the time for which
/// relays keep a failed member, or if they have forgotten it before: a busy quorum fences late.
fn relay_notified(cluster: &Cluster, relays: &[&str], told_before: f64) -> bool {
    let begun = Instant::now();
    while told_by(cluster, relays) <= told_before {
        if begun.elapsed() > Duration::from_secs(3) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Pauses and wakes a node. Returns an error unless the notification of its relay was the first one that it read.
fn fence_by_relay(cluster: &Cluster, victim: &str, relays: &[&str]) -> Result<(), String> {
    wait_relayed(cluster, &[victim], 3.0);
    let (before, told_before) = (count(cluster, victim, TOLD_OVER)?, told_by(cluster, relays));
    let mut told = false;
    let notified = || told = relay_notified(cluster, relays, told_before);
    let (log, took) = woken(cluster, victim, pause_while_relayed, notified);
    cluster.wait_node(victim, "alive");
    if !told {
        return Err("its relay had forgotten it when it was fenced".to_owned());
    }
    println!("{victim} registered {took:?} after it woke");
    if log.contains(TOLD_BY_COORDINATOR) {
        return Err(format!("a coordinator answered first: {log}"));
    }
    // The notification was waiting before the node could ask; another node that it calls may have been as fast.
    let teller = log.lines().find_map(|line| line.split_once(TOLD_BY_NODE)?.0.rsplit(' ').next());
    let teller = teller.unwrap_or_else(|| panic!("nobody told it: {log}"));
    assert!(NODES.contains(&teller.trim()), "told by {teller}");
    assert_eq!(count(cluster, victim, TOLD_OVER), Ok(before + 1.0));
    Ok(())
}

#[test]
fn relay_fences_a_paused_node_as_it_wakes() {
    let cluster = start(EXE, &Options { room: Room::Calm, ..options(Network::Loopback) });
    wait_relayed(&cluster, &NODES, 5.0);
    let relays = relays(&cluster);
    let victim = NODES.into_iter().find(|node| !relays.contains(node)).expect("half of them relay");
    let mut failures = Vec::new();
    while let Err(failure) = fence_by_relay(&cluster, victim, &relays) {
        failures.push(failure);
        assert!(failures.len() < 5, "{victim}: {failures:#?}");
    }
    cluster.wait_whole(3);
}

/// The first contact notifies it: a coordinator that it calls, or a node that receives its messages.
#[test]
fn paused_node_without_relays_is_fenced_at_first_contact() {
    let cluster = start_without(EXE, &options(Network::Loopback));
    let (log, took) = woken(&cluster, NODES[1], pause, || ());
    let by_node = log.contains(TOLD_BY_NODE);
    println!("{} registered {took:?} after it woke, told by a node: {by_node}", NODES[1]);
    assert!(by_node || log.contains(TOLD_BY_COORDINATOR), "{log}");
    assert_eq!(count(&cluster, NODES[1], TOLD_OVER), Ok(f64::from(u8::from(by_node))));
    cluster.wait_node(NODES[1], "alive");
}

/// No coordinator reaches it, and its successors receive its messages.
#[test]
fn node_cut_off_from_coordinators_is_fenced_by_its_peers() {
    if !Network::Namespaces.available() {
        return skipped("no node is cut off from the coordinators: that needs root and network namespaces");
    }
    let mut cluster = start_without(EXE, &options(Network::Namespaces));
    let victim = NODES[1];
    for coordinator in [0, 1, 2].map(coordinator_name) {
        cluster.links().cut_both(victim, &coordinator);
    }
    wait_for("a node to tell it", TIMEOUT, || {
        let log = cluster.node(victim).log();
        check(log.contains(TOLD_BY_NODE), || log)
    });
    cluster.links().mend_everything();
    cluster.wait_node(victim, "alive");
    cluster.wait_whole(3);
    let log = cluster.node(victim).log();
    assert!(!log.contains(TOLD_BY_COORDINATOR), "{log}");
}
