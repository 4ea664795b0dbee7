//! Shared parts of tests of relayed heartbeats: with `relays_from=2` a cluster of four has two relays.

use crate::options::LONG_LEASES;
use crate::{Cluster, Network, Options, Scrape, http};
use archon_testkit::check;
use archon_testkit::wait_for;
use std::time::Duration;

/// Nodes of a cluster with relays.
pub const NODES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];
/// Time-out of every wait.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Metric: heartbeat answers through a relay.
pub const RELAYED: &str = "archon_node_heartbeats_relayed_total";
/// Metric: heartbeats relayed by a node.
pub const CARRIED: &str = "archon_node_relay_heartbeats_total";
/// Metric: lapsed leases.
const LAPSED: &str = "archon_node_leases_lapsed_total";

/// Options under which each node holds copies.
pub fn options(network: Network) -> Options {
    // With network faults, members serve no metrics.
    let metrics = network == Network::Loopback;
    Options {
        nodes: NODES.to_vec(),
        nodes_min: NODES.len(),
        metrics,
        network,
        timing: Some(LONG_LEASES),
        ..Options::replicated()
    }
}

/// Starts a cluster without relays, of the program `env!("CARGO_BIN_EXE_archon-under-test")`.
pub fn start_without(exe: &str, options: &Options) -> Cluster {
    let cluster = Cluster::start(exe, options);
    cluster.wait_whole(3);
    cluster.wait_protocol(2);
    cluster
}

/// Starts a cluster in which two of four nodes relay.
pub fn start(exe: &str, options: &Options) -> Cluster {
    let cluster = start_without(exe, options);
    cluster.done(&["config", "set", "relays_from=2"]);
    cluster
}

/// Returns a metric of a member.
///
/// # Errors
/// If it does not answer.
pub fn count(cluster: &Cluster, node: &str, series: &str) -> Result<f64, String> {
    let answer = http::get(cluster.metrics_address(node), "/metrics").map_err(|error| format!("{node}: {error}"))?;
    Ok(Scrape::read(&answer.body)?.get(series))
}

/// Waits until each of these nodes has had `more` relayed answers.
///
/// # Panics
/// If that does not happen.
pub fn wait_relayed(cluster: &Cluster, nodes: &[&str], more: f64) {
    let before: Vec<f64> = nodes.iter().map(|node| count(cluster, node, RELAYED).unwrap_or(0.0)).collect();
    wait_for("heartbeats to be carried", TIMEOUT, || {
        let now: Result<Vec<f64>, String> = nodes.iter().map(|node| count(cluster, node, RELAYED)).collect();
        let now = now?;
        check(before.iter().zip(&now).all(|(before, now)| now - before >= more), || format!("{before:?}, {now:?}"))
    });
}

/// Returns the nodes that relay heartbeats.
pub fn relays(cluster: &Cluster) -> Vec<&'static str> {
    NODES.into_iter().filter(|node| count(cluster, node, CARRIED).is_ok_and(|count| count > 0.0)).collect()
}

/// Asserts that none of these nodes lost its lease.
///
/// # Panics
/// If one did.
#[track_caller]
pub fn assert_no_lease_lapsed(cluster: &Cluster, nodes: &[&str]) {
    for node in nodes {
        assert_eq!(count(cluster, node, LAPSED), Ok(0.0), "{node}");
    }
}

/// Waits until each live node is listed with its relay: one of `relays`, or none.
///
/// # Panics
/// If that does not happen.
pub fn wait_listed(cluster: &Cluster, relays: &[&str]) {
    cluster.wait_json("the list to say who relays", TIMEOUT, &["node", "list"], |listed| {
        let alive = listed.as_array().into_iter().flatten().filter(|node| node["status"] == "alive");
        let right = |node: &serde_json::Value| match node["via"].as_str() {
            Some(relay) => relays.contains(&relay),
            None => relays.is_empty() || node["node"].as_str().is_some_and(|name| relays.contains(&name)),
        };
        alive.clone().count() > 1 && alive.clone().all(right)
    });
}
