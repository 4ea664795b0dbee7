//! What tests share in which nodes carry each other's heartbeats: with `relays_from=2` a cluster of four has two relays.

use crate::wait::check;
use crate::{Cluster, Network, Options, Scrape, http, wait_for};
use std::time::Duration;

/// The nodes of a cluster with relays.
pub const NODES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];
/// How long anything may take.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Answers by a relay.
pub const RELAYED: &str = "archon_node_heartbeats_relayed_total";
/// Heartbeats that a node carried.
pub const CARRIED: &str = "archon_node_relay_heartbeats_total";
/// Leases that lapsed.
const LAPSED: &str = "archon_node_leases_lapsed_total";

/// Each node holds something.
pub fn options(network: Network) -> Options {
    // Behind links of their own members tell their metrics to nobody.
    let metrics = network == Network::Loopback;
    Options { nodes: NODES.to_vec(), nodes_min: NODES.len(), metrics, network, alone: true, ..Options::replicated() }
}

/// Starts one without relays, of the program `env!("CARGO_BIN_EXE_archon-under-test")`.
pub fn start_without(exe: &str, options: &Options) -> Cluster {
    let cluster = Cluster::start(exe, options);
    cluster.wait_whole(3);
    cluster.wait_protocol(2);
    cluster
}

/// Starts one in which two of its four nodes relay.
pub fn start(exe: &str, options: &Options) -> Cluster {
    let cluster = start_without(exe, options);
    cluster.done(&["config", "set", "relays_from=2"]);
    cluster
}

/// What a member has counted.
///
/// # Errors
/// If it does not tell.
pub fn count(cluster: &Cluster, node: &str, series: &str) -> Result<f64, String> {
    let answer = http::get(cluster.metrics_address(node), "/metrics").map_err(|error| format!("{node}: {error}"))?;
    Ok(Scrape::read(&answer.body)?.get(series))
}

/// Waits until each of these nodes has had `more` answers by a relay.
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

/// The nodes that carry heartbeats.
pub fn relays(cluster: &Cluster) -> Vec<&'static str> {
    NODES.into_iter().filter(|node| count(cluster, node, CARRIED).is_ok_and(|count| count > 0.0)).collect()
}

/// Looks whether any of these was without a lease.
///
/// # Panics
/// If one was.
#[track_caller]
pub fn assert_no_lease_lapsed(cluster: &Cluster, nodes: &[&str]) {
    for node in nodes {
        assert_eq!(count(cluster, node, LAPSED), Ok(0.0), "{node}");
    }
}

/// Waits until the nodes that are alive are listed with whoever relays for them: one of `relays`, or nobody.
///
/// # Panics
/// If that does not happen.
pub fn wait_listed(cluster: &Cluster, relays: &[&str]) {
    wait_for("the list to say who relays", TIMEOUT, || {
        let listed = cluster.json(&["node", "list"])?;
        let alive = listed.as_array().into_iter().flatten().filter(|node| node["status"] == "alive");
        let right = |node: &serde_json::Value| match node["via"].as_str() {
            Some(relay) => relays.contains(&relay),
            None => relays.is_empty() || node["node"].as_str().is_some_and(|name| relays.contains(&name)),
        };
        check(alive.clone().count() > 1 && alive.clone().all(right), || listed.to_string())
    });
}
