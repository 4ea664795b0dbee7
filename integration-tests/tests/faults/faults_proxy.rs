//! What packets lost in a router cannot show, by proxies before every member: bytes that stand still and arrive late,
//! connections that break, links that are slow and far. Runs without root.

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

/// Everyone else that `name` talks with.
fn everyone_but(name: &str) -> Vec<String> {
    let coordinators = [0, 1, 2].map(coordinator_name);
    let nodes = NODES.into_iter().filter(|other| *other != name).map(str::to_owned);
    coordinators.into_iter().chain(nodes).chain([CLIENTS.to_owned()]).collect()
}

/// 28, 29 and 30: every connection of a node stands half open past its lease and a change of epochs; then all that was
/// under way arrives at once, from an epoch that is over.
#[test]
fn messages_that_arrive_after_a_change_of_epoch_are_refused() {
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

/// 33: answers are lost with their connections, again and again; retries get the first answer.
#[test]
fn connections_break_and_every_operation_counts_once() {
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

/// Only answers to clients stand still for a while; what they asked for has happened.
#[test]
fn answers_that_come_late() {
    Scene::play(EXE, "answers", &cluster(), &load(3), |scene| {
        for victim in NODES {
            scene.cluster.links().cut(victim, CLIENTS);
            scene.last(Duration::from_millis(1_500));
            scene.cluster.links().mend(victim, CLIENTS);
            scene.last(Duration::from_millis(500));
        }
    });
}

/// A node far away, and a leader's disk of words: 60 ms each way to one node, then a trickle to it.
#[test]
fn a_node_that_is_far_away_and_then_behind_a_trickle() {
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
