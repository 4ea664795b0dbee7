//! Faults while an operator continuously splits and merges the partitions of a table by ranges, around the clients'
//! keys. The history of every key is checked across all splits and merges.

use crate::EXE;
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::{CLIENTS, Network, Options, Scene, WorkloadOptions};
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// Longer than a lease and the failure time-out together.
const LONG: Duration = Duration::from_secs(4);

fn three_copies(network: Network) -> Options {
    Options { replication: 3, network, ..Options::default() }
}

fn load(seed: u64) -> WorkloadOptions {
    WorkloadOptions { seed, table: Some("times"), ..WorkloadOptions::default() }
}

/// No process dies: clients see the effect of splits and merges alone.
#[test]
fn ten_splits_and_merges_under_load_stay_linearizable() {
    let patient = WorkloadOptions { hasty: Duration::from_secs(45), ..load(59) };
    Scene::play(EXE, "ten of each", &three_copies(Network::Loopback), &patient, |scene| {
        scene.reshape();
        scene.wait_reshaped(10, 10);
    });
}

/// Each node is killed during a split or merge, and returns; then the leading coordinator.
#[test]
fn kills_during_splits_and_merges_stay_linearizable() {
    Scene::play(EXE, "ranges, killed", &three_copies(Network::Loopback), &load(159), |scene| {
        scene.reshape();
        for victim in NODES {
            scene.wait_reshaped(1, 1);
            scene.cluster.take_node(victim).kill();
            let served = scene.everyone_is_served();
            scene.say(&format!("killed {victim}: everyone is served after {served:?}"));
            scene.progress(100);
            scene.heal();
        }
        scene.wait_reshaped(1, 1);
        let (leader, _) = scene.cluster.wait_leader();
        scene.cluster.take_coordinator(leader).kill();
        scene.wait_reshaped(1, 1);
    });
}

/// Nodes are paused for longer than their leases, and wake during later attempts.
#[test]
fn pauses_during_splits_and_merges_stay_linearizable() {
    Scene::play(EXE, "ranges, paused", &three_copies(Network::Loopback), &load(259), |scene| {
        scene.reshape();
        for victim in [NODES[0], NODES[2]] {
            scene.wait_reshaped(1, 1);
            scene.cluster.node(victim).pause();
            scene.everyone_is_served();
            scene.last(LONG);
            scene.cluster.node(victim).resume();
        }
        scene.heal();
        scene.wait_reshaped(1, 1);
        scene.say("two nodes at once");
        scene.cluster.node(NODES[0]).pause();
        scene.cluster.node(NODES[1]).pause();
        scene.last(LONG);
        scene.heal();
        scene.wait_reshaped(1, 1);
    });
}

/// Every process at once, the second time while it recovers from the first.
#[test]
fn total_kills_during_splits_and_merges_stay_linearizable() {
    Scene::play(EXE, "ranges, everything", &three_copies(Network::Loopback), &load(359), |scene| {
        scene.reshape();
        scene.wait_reshaped(2, 2);
        scene.cluster.kill_everything();
        scene.cluster.start_everything();
        scene.cluster.wait_leader();
        scene.cluster.kill_everything();
        scene.cluster.start_everything();
        scene.heal();
        scene.wait_reshaped(2, 2);
        scene.cluster.kill_everything();
        scene.cluster.start_everything();
    });
}

/// A node unreachable for all, one unreachable for the other nodes only, and a leading coordinator unreachable for all
/// nodes.
#[test]
fn link_cuts_during_splits_and_merges_stay_linearizable() {
    Scene::play(EXE, "ranges, cut", &three_copies(Network::Namespaces), &load(459), |scene| {
        scene.reshape();
        let coordinators = [0, 1, 2].map(coordinator_name);
        let others = |victim: &str| NODES.into_iter().filter(|other| *other != victim).collect::<Vec<_>>();
        scene.wait_reshaped(1, 1);
        scene.say("a node is cut off from everyone");
        for other in coordinators.iter().map(String::as_str).chain(others(NODES[0])).chain([CLIENTS]) {
            scene.cluster.links().cut_both(NODES[0], other);
        }
        scene.cluster.wait_node(NODES[0], "failed");
        scene.everyone_is_served();
        scene.heal();
        scene.wait_reshaped(1, 1);
        scene.say("a node is cut off from the other nodes");
        for other in others(NODES[1]) {
            scene.cluster.links().cut_both(NODES[1], other);
        }
        scene.everyone_is_served();
        scene.last(LONG);
        scene.heal();
        scene.wait_reshaped(1, 1);
        let (leader, _) = scene.cluster.wait_leader();
        scene.say("the leading coordinator is cut off from everyone but clients");
        for other in NODES.into_iter().chain(coordinators.iter().map(String::as_str)) {
            if other != coordinators[leader] {
                scene.cluster.links().cut_both(&coordinators[leader], other);
            }
        }
        scene.last(LONG);
        scene.heal();
        scene.wait_reshaped(1, 1);
    });
}

/// The clients know only athens, which forwards operations to the current leaders.
#[test]
fn one_reachable_node_during_reshaping_stays_linearizable() {
    let load = WorkloadOptions { via: Some(NODES[0]), ..load(559) };
    Scene::play(EXE, "ranges, via athens", &three_copies(Network::Loopback), &load, |scene| {
        scene.reshape();
        scene.wait_reshaped(3, 3);
        scene.cluster.take_node(NODES[1]).kill();
        scene.everyone_is_served();
        scene.heal();
        scene.wait_reshaped(1, 1);
    });
}
