//! Faults that a lossy router cannot produce, by proxies in front of every member: bytes held back, broken connections,
//! slow and distant links. Runs without root.

use crate::EXE;
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::{CLIENTS, Network, Options, Scene, WorkloadOptions};
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];

fn cluster() -> Options {
    Options { replication: 3, network: Network::Proxies, ..Options::default() }
}

fn load(seed: u64) -> WorkloadOptions {
    WorkloadOptions { seed, ..WorkloadOptions::default() }
}

/// Returns all other hosts that `name` talks to.
fn everyone_but(name: &str) -> Vec<String> {
    let coordinators = [0, 1, 2].map(coordinator_name);
    let nodes = NODES.into_iter().filter(|other| *other != name).map(str::to_owned);
    coordinators.into_iter().chain(nodes).chain([CLIENTS.to_owned()]).collect()
}

/// 28, 29 and 30: every connection of a node is half open past its lease and a change of epochs; then all held-back
/// messages of an ended epoch arrive at once.
#[test]
fn messages_of_an_earlier_epoch_are_refused() {
    Scene::play(EXE, "late", &cluster(), &load(29), |scene| {
        for victim in [NODES[0], NODES[1]] {
            scene.say(&format!("everything to and from {victim} stands still"));
            for other in everyone_but(victim) {
                scene.cluster.links().cut_both(victim, &other);
            }
            scene.cluster.wait_node(victim, "failed");
            scene.everyone_is_served();
            scene.heal();
        }
    });
}

/// 33: answers are lost with their connections, repeatedly; retries get the first answer.
#[test]
fn broken_connections_apply_every_operation_once() {
    Scene::play(EXE, "resets", &cluster(), &load(33), |scene| {
        for round in 0..24 {
            let victim = NODES[round % 3];
            for other in everyone_but(victim) {
                if other == CLIENTS || round % 4 == 3 {
                    scene.cluster.links().reset(victim, &other);
                }
            }
            scene.last(Duration::from_millis(150));
        }
    });
}

/// Only answers to clients are held back for a while; their requests took effect.
#[test]
fn late_answers_apply_every_operation_once() {
    Scene::play(EXE, "answers", &cluster(), &load(3), |scene| {
        for victim in NODES {
            scene.cluster.links().cut(victim, CLIENTS);
            scene.last(Duration::from_millis(1_500));
            scene.cluster.links().mend(victim, CLIENTS);
            scene.last(Duration::from_millis(500));
        }
    });
}

/// A distant node: 60 ms each way, then a trickle.
#[test]
fn distant_then_trickling_node_stays_linearizable() {
    Scene::play(EXE, "far", &cluster(), &load(31), |scene| {
        let far = NODES[2];
        for other in everyone_but(far) {
            scene.cluster.links().delay(far, &other, Duration::from_millis(60));
            scene.cluster.links().delay(&other, far, Duration::from_millis(60));
        }
        scene.progress(150);
        scene.cluster.links().mend_everything();
        scene.cluster.links().slow(far, Some(20_000));
        scene.last(Duration::from_secs(4));
        scene.everyone_is_served();
    });
}
