//! Heartbeats that nodes carry for each other, on real processes: with `relays_from=2` a cluster of four has two relays.

use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::wait::check;
use archon_integration_tests::{Cluster, Network, Options, Scrape, http, wait_for};
use archon_skip::skipped;
use std::time::{Duration, Instant};

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
const NODES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];
const TIMEOUT: Duration = Duration::from_secs(60);
const RELAYED: &str = "archon_node_heartbeats_relayed_total";
const CARRIED: &str = "archon_node_relay_heartbeats_total";
const LAPSED: &str = "archon_node_leases_lapsed_total";

fn start(network: Network) -> Cluster {
    // By TLS nobody relays.
    // Behind links of their own members tell their metrics to nobody.
    let metrics = network == Network::Loopback;
    let options = Options { nodes: NODES.to_vec(), metrics, tls: false, network, alone: true, ..Options::replicated() };
    let cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);
    cluster.wait_protocol(2);
    cluster.done(&["config", "set", "relays_from=2"]);
    cluster
}

fn count(cluster: &Cluster, node: &str, series: &str) -> Result<f64, String> {
    let answer = http::get(cluster.metrics_address(node), "/metrics").map_err(|error| format!("{node}: {error}"))?;
    Ok(Scrape::read(&answer.body)?.get(series))
}

/// Waits until each of these nodes has had `more` answers by a relay.
fn wait_relayed(cluster: &Cluster, nodes: &[&str], more: f64) {
    let before: Vec<f64> = nodes.iter().map(|node| count(cluster, node, RELAYED).unwrap_or(0.0)).collect();
    wait_for("heartbeats to be carried", TIMEOUT, || {
        let now: Result<Vec<f64>, String> = nodes.iter().map(|node| count(cluster, node, RELAYED)).collect();
        let now = now?;
        check(before.iter().zip(&now).all(|(before, now)| now - before >= more), || format!("{before:?}, {now:?}"))
    });
}

/// The nodes that carry heartbeats.
fn relays(cluster: &Cluster) -> Vec<&'static str> {
    NODES.into_iter().filter(|node| count(cluster, node, CARRIED).is_ok_and(|count| count > 0.0)).collect()
}

#[track_caller]
fn assert_no_lease_lapsed(cluster: &Cluster, nodes: &[&str]) {
    for node in nodes {
        assert_eq!(count(cluster, node, LAPSED), Ok(0.0), "{node}");
    }
}

#[test]
fn a_killed_relay_costs_nobody_its_lease() {
    let mut cluster = start(Network::Loopback);
    wait_relayed(&cluster, &NODES, 5.0);
    let relays = relays(&cluster);
    let victim = relays[0];
    println!("relays: {relays:?}; killed: {victim}");
    cluster.take_node(victim).kill();
    cluster.wait_node(victim, "failed");
    let left: Vec<&str> = NODES.into_iter().filter(|node| *node != victim).collect();
    wait_relayed(&cluster, &left, 5.0);
    assert_no_lease_lapsed(&cluster, &left);
    // Nobody relays any more: everybody goes straight.
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
    assert_no_lease_lapsed(&cluster, &left);
}

#[test]
fn whoever_leads_next_hears_everybody_by_the_relays() {
    let mut cluster = start(Network::Loopback);
    wait_relayed(&cluster, &NODES, 5.0);
    let (leader, _) = cluster.wait_leader();
    cluster.take_coordinator(leader).kill();
    cluster.wait_leader();
    wait_relayed(&cluster, &NODES, 5.0);
    for node in NODES {
        cluster.wait_node(node, "alive");
    }
}

/// Whether it relays itself or not: its own relay says that no coordinator answers, and the other one reaches one.
#[test]
fn a_node_that_no_coordinator_hears_directly_lives_by_a_relay() {
    if !Network::Namespaces.available() {
        return skipped("no node is cut off from the coordinators: that needs root and network namespaces");
    }
    let mut cluster = start(Network::Namespaces);
    for victim in NODES {
        wait_for("its heartbeats to be carried", TIMEOUT, || {
            let log = cluster.node(victim).log();
            let last = log.lines().rev().find(|line| line.contains("heartbeats"));
            let last = last.unwrap_or_default();
            check(last.contains("are carried by a relay"), || last.to_owned())
        });
        println!("cut off from all coordinators: {victim}");
        for coordinator in [0, 1, 2].map(coordinator_name) {
            cluster.links().cut_both(victim, &coordinator);
        }
        // Three failure time-outs.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            let nodes = cluster.json(&["node", "list"]).expect("a list");
            let row = nodes.as_array().and_then(|rows| rows.iter().find(|row| row["node"] == victim)).cloned();
            assert_eq!(row.as_ref().map(|row| &row["status"]), Some(&"alive".into()), "{victim}: {nodes}");
        }
        let log = cluster.node(victim).log();
        assert!(!log.contains("lease lapsed"), "{log}");
        cluster.links().mend_everything();
    }
}
