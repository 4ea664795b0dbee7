//! Live nodes that clients do not reach, on real processes: behind proxies that accept connections and do nothing with
//! them, behind a router that drops packets to their port, and with shards that take turns and answer no client.

use crate::EXE;
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::disk::{Injection, SAYS_NOTHING};
use archon_integration_tests::{CLIENTS, Cluster, Network, Options, Room};
use archon_testkit::{check, skipped, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time for which a node must be reachable again before it may lead.
const TRUST: Duration = Duration::from_secs(4);

fn start(network: Network) -> Cluster {
    let options = Options { network, room: Room::Calm, ..Options::replicated() };
    let cluster = Cluster::start(EXE, &options);
    cluster.wait_whole(3);
    cluster.wait_protocol(2);
    cluster.done(&["config", "set", &format!("door_trust_ms={}", TRUST.as_millis())]);
    for node in NODES {
        wait_door(&cluster, node, &["open"]);
    }
    cluster
}

/// Returns all hosts that connect to a node.
fn callers(of: &str) -> Vec<String> {
    let coordinators = [0, 1, 2].map(coordinator_name);
    let nodes = NODES.into_iter().filter(|node| *node != of).map(str::to_owned);
    coordinators.into_iter().chain(nodes).chain([CLIENTS.to_owned()]).collect()
}

fn row(cluster: &Cluster, node: &str) -> Result<Value, String> {
    let listed = cluster.asked(&["node", "list"])?;
    let found = listed.as_array().and_then(|rows| rows.iter().find(|row| row["node"] == node)).cloned();
    found.ok_or_else(|| listed.to_string())
}

/// Waits until a node's reachability is one of these states; returns the state and the time taken.
fn wait_door(cluster: &Cluster, node: &str, states: &[&str]) -> (String, Duration) {
    wait_for(&format!("the door of {node} to be {states:?}"), TIMEOUT, || {
        let row = row(cluster, node)?;
        let state = row["door"]["state"].as_str().unwrap_or_default().to_owned();
        if states.contains(&&*state) { Ok(state) } else { Err(row.to_string()) }
    })
}

/// Returns the copies and their nodes.
fn copies(cluster: &Cluster) -> BTreeSet<(u64, u64)> {
    let partitions = cluster.partitions("default");
    let copies = partitions.iter().flat_map(|row| row["copies"].as_array().cloned().unwrap_or_default());
    let copies = copies.map(|copy| (copy["placement_id"].as_u64().unwrap_or(0), copy["node_id"].as_u64().unwrap_or(0)));
    copies.collect()
}

/// Returns the partitions that a node leads, each with its epoch.
fn led(cluster: &Cluster, node: &str) -> Vec<(u64, u64)> {
    let led = cluster.partitions("default").into_iter().filter(|row| row["leader"] == node);
    led.map(|row| (row["partition"].as_u64().unwrap_or(0), row["epoch"].as_u64().unwrap_or(0))).collect()
}

#[test]
fn unreachable_node_with_heartbeats_loses_its_leaderships() {
    lose_a_door(start(Network::Proxies), shut_on_the_way, open_on_the_way);
}

/// A firewall drops packets to its port, and passes the connections that the node itself opens.
#[test]
fn firewalled_node_loses_its_leaderships() {
    if !Network::Namespaces.available() {
        return skipped("no port is dropped on the way: that needs root and network namespaces");
    }
    lose_a_door(start(Network::Namespaces), shut_on_the_way, open_on_the_way);
}

/// It accepts connections and reads from them, its shards take turns, its heartbeats pass; but nothing that a shard's
/// thread sends leaves, since the system reports a full buffer.
#[test]
fn node_with_a_mute_shard_loses_its_leaderships() {
    let silenced = |cluster: &mut Cluster, victim: &str| {
        let silence = Injection::start_on_threads(cluster.node(victim).pid(), "shard-", &SAYS_NOTHING);
        silence.expect("whether strace may attach was asked before")
    };
    let cluster = start(Network::Loopback);
    // Tried on another process, so that this one becomes unreachable only when intended.
    let tried = Injection::start_on_threads(cluster.node(NODES[2]).pid(), "shard-", &["getrusage:delay_enter=0"]);
    if tried.is_none() {
        return skipped("no shard is silenced: that needs root and strace");
    }
    drop(tried);
    lose_a_door(cluster, silenced, |_, _, silence| drop(silence));
}

fn shut_on_the_way(cluster: &mut Cluster, victim: &str) {
    for caller in callers(victim) {
        cluster.links().shut(&caller, victim);
    }
}

fn open_on_the_way(cluster: &mut Cluster, victim: &str, (): ()) {
    for caller in callers(victim) {
        cluster.links().open(&caller, victim);
    }
}

/// Makes a node unreachable by `shut`, for as long as its result lives, and reachable by `open`.
fn lose_a_door<S>(
    mut cluster: Cluster,
    shut: impl FnOnce(&mut Cluster, &str) -> S,
    open: impl FnOnce(&mut Cluster, &str, S),
) {
    let victim = NODES[0];
    let key = cluster.key_led_by(victim);
    cluster.done(&["kv", "put", &key, "before"]);
    let (before, incarnation) = (copies(&cluster), row(&cluster, victim).expect("a row")["incarnation"].clone());
    let shut = shut(&mut cluster, victim);
    let (_, took) = wait_door(&cluster, victim, &["unreached"]);
    println!("{victim} was unreached after {took:?}");
    wait_for("others to lead what it led", TIMEOUT, || {
        let left = led(&cluster, victim);
        check(left.is_empty(), || format!("{left:?}"))
    });
    cluster.done(&["kv", "put", &key, "after", "--timeout", "10s"]);
    assert_eq!(cluster.done(&["kv", "get", &key]), "after");
    let status = cluster.json(&["status"]).expect("a status");
    assert_eq!((&status["nodes_unreached"], &status["nodes_alive"]), (&1.into(), &3.into()), "{status}");
    let reasons = status["reasons"].as_array().expect("reasons");
    let reason = reasons.iter().find(|reason| reason["code"] == "node_unreached").expect("why");
    assert!(reason["remedy"].as_str().is_some_and(|remedy| remedy.contains(cluster.node_address(victim))), "{reason}");
    let listed = cluster.done(&["node", "list"]);
    assert!(listed.contains("DOOR") && listed.contains("unreached "), "{listed}");
    let described = cluster.done(&["node", "describe", victim]);
    assert!(described.lines().any(|line| line.starts_with("door ") && line.contains(", to ")), "{described}");
    let events = cluster.done(&["events"]);
    assert!(events.contains("was unreachable to"), "{events}");

    // Its incarnation continues, and nothing was moved.
    let found = row(&cluster, victim).expect("a row");
    assert_eq!((&found["status"], &found["incarnation"]), (&"alive".into(), &incarnation), "{found}");
    assert_eq!(copies(&cluster), before);

    let opened = Instant::now();
    open(&mut cluster, victim, shut);
    wait_door(&cluster, victim, &["returning"]);
    wait_door(&cluster, victim, &["open"]);
    // A lower bound only: a busy machine takes longer.
    assert!(opened.elapsed() >= TRUST.mul_f64(0.85), "{:?}", opened.elapsed());
    cluster.wait_whole(3);
    assert_eq!((copies(&cluster), led(&cluster, victim)), (before, Vec::new()));
    let other = cluster.leader_of(&key);
    cluster.take_node(&other).kill();
    wait_for("it to lead again", TIMEOUT, || {
        let led = led(&cluster, victim);
        check(!led.is_empty(), || format!("{led:?}"))
    });
}

#[test]
fn node_unreachable_for_one_prober_keeps_its_leaderships() {
    let mut cluster = start(Network::Proxies);
    let (victim, keeper) = (NODES[0], NODES[1]);
    let before = led(&cluster, victim);
    assert!(!before.is_empty());
    cluster.links().shut(keeper, victim);
    wait_door(&cluster, victim, &["doubted"]);
    // Twice as long as both would need.
    cluster.holds_for("the node to be reachable", Duration::from_secs(8), &["node", "list"], |nodes| {
        let found = nodes.as_array().and_then(|rows| rows.iter().find(|row| row["node"] == victim));
        found.is_some_and(|row| row["door"]["state"] != "unreached")
    });
    wait_for("one prober alone to find it shut", TIMEOUT, || {
        let found = row(&cluster, victim)?;
        check(found["door"]["shut_to"] == Value::from(vec![keeper]), || found.to_string())
    });
    assert_eq!(led(&cluster, victim), before);
    cluster.links().open(keeper, victim);
    wait_door(&cluster, victim, &["open"]);
}
