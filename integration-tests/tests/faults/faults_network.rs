//! Cut, one-way, slow and flapping links, with three copies on three nodes. The router between the members' network
//! namespaces drops packets; needs root, and is skipped with a message otherwise. The numbers are those of the fault
//! catalogue in `docs/design/faults.md`.

use crate::EXE;
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::{CLIENTS, Network, Options, Scene, WorkloadOptions};
use serde_json::Value;
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// Longer than a lease and the failure time-out together.
const LONG: Duration = Duration::from_secs(4);

fn cluster() -> Options {
    Options { replication: 3, network: Network::Namespaces, ..Options::default() }
}

fn load(seed: u64) -> WorkloadOptions {
    WorkloadOptions { seed, ..WorkloadOptions::default() }
}

fn coordinators() -> [String; 3] {
    [0, 1, 2].map(coordinator_name)
}

fn others(name: &str) -> Vec<&'static str> {
    NODES.into_iter().filter(|other| *other != name).collect()
}

/// 22: cut off from every host, a leader stops when its lease ends, and a successor serves.
#[test]
fn isolated_node_is_succeeded() {
    Scene::play(EXE, "isolated", &cluster(), &load(22), |scene| {
        for victim in [NODES[0], NODES[1]] {
            scene.say(&format!("cut {victim} off from everyone"));
            let everyone = coordinators().into_iter().chain(others(victim).into_iter().map(str::to_owned));
            for other in everyone.chain([CLIENTS.to_owned()]) {
                scene.cluster.links().cut_both(victim, &other);
            }
            scene.cluster.wait_node(victim, "failed");
            let served = scene.everyone_is_served();
            scene.say(&format!("everyone is served after another {served:?}"));
            scene.heal();
        }
    });
}

/// 24: it sends and receives nothing: its lease, counted from sending, ends all the same. Then the other direction.
#[test]
fn one_way_isolated_node_fails_and_clients_are_served() {
    Scene::play(EXE, "one way", &cluster(), &load(24), |scene| {
        let victim = NODES[0];
        for deaf in [true, false] {
            scene.say(if deaf { "it hears nothing" } else { "nobody hears it" });
            for other in coordinators().iter().map(String::as_str).chain(others(victim)) {
                match deaf {
                    true => scene.cluster.links().cut(other, victim),
                    false => scene.cluster.links().cut(victim, other),
                }
            }
            scene.cluster.wait_node(victim, "failed");
            scene.everyone_is_served();
            scene.heal();
        }
    });
}

/// 22, 24 and 56: a deposed leader that could not be notified; a client that knows only this node, and reaches no
/// coordinator, reads nothing stale from it.
#[test]
fn client_of_a_deposed_leader_reads_nothing_stale() {
    Scene::play(EXE, "deposed", &cluster(), &load(56), |scene| {
        let victim = NODES[0];
        for other in coordinators().iter().map(String::as_str).chain(others(victim)) {
            scene.cluster.links().cut_both(victim, other);
        }
        scene.cluster.wait_node(victim, "failed");
        scene.everyone_is_served();
        for coordinator in coordinators() {
            scene.cluster.links().cut_both(CLIENTS, &coordinator);
        }
        let answered = scene.read_through(victim, LONG);
        scene.say(&format!("{answered} reads of a newcomer were answered"));
    });
}

/// 34, for one node: cut off from the quorum only. It fails, and others lead its partitions and receive its messages.
#[test]
fn node_cut_off_from_quorum_is_succeeded() {
    Scene::play(EXE, "no quorum", &cluster(), &load(34), |scene| {
        for coordinator in coordinators() {
            scene.cluster.links().cut_both(NODES[1], &coordinator);
        }
        scene.cluster.wait_node(NODES[1], "failed");
        scene.everyone_is_served();
        // Its former partitions have had other leaders for a while, and it still reaches clients and peers.
        scene.last(LONG);
    });
}

fn cut_from_followers(scene: &mut Scene, name: &str) {
    for other in others(name) {
        scene.cluster.links().cut_both(name, other);
    }
}

/// Returns the number of Live copies of a listed partition.
fn live_copies(row: &Value) -> usize {
    let copies = row["copies"].as_array().into_iter().flatten();
    copies.filter(|copy| copy["state"] == "live").count()
}

/// 23: it reaches coordinators and clients, but not the other nodes: the Live sets stay at two or more, nothing wrong
/// is read, and uncommitted writes continue when the links are mended.
#[test]
fn leader_cut_off_from_followers_serves_nothing_wrong() {
    Scene::play(EXE, "no followers", &cluster(), &load(23), |scene| {
        cut_from_followers(scene, NODES[2]);
        scene.last(LONG);
        let list = scene.cluster.json(&["partition", "list"]).expect("the quorum is there");
        for row in list.as_array().expect("partition list is an array") {
            assert!(live_copies(row) >= 2, "below the minimum: {row}");
        }
    });
}

/// 23, the other half: the leadership moves to a copy that reaches enough of the others.
#[test]
fn leader_cut_off_from_followers_is_succeeded() {
    Scene::play(EXE, "no followers, succeeded", &cluster(), &load(123), |scene| {
        cut_from_followers(scene, NODES[2]);
        let served = scene.everyone_is_served();
        scene.say(&format!("everyone is served after {served:?}"));
        scene.cluster.wait_partitions("nobody to be led by the node without followers", |rows| {
            rows.iter().all(|row| row["leader"] != NODES[2])
        });
    });
}

/// 23 again, one follower after the other: the first is dropped, the second cannot be. The second takes over, and it
/// adds the dropped copy meanwhile.
#[test]
fn leader_losing_followers_one_by_one_is_succeeded() {
    Scene::play(EXE, "one after the other", &cluster(), &load(223), |scene| {
        let victim = NODES[2];
        scene.cluster.links().cut_both(victim, NODES[0]);
        scene.cluster.wait_partitions("the first follower to be dropped", |rows| {
            rows.iter().filter(|row| row["leader"] == victim).all(|row| live_copies(row) == 2)
        });
        cut_from_followers(scene, victim);
        let served = scene.everyone_is_served();
        scene.say(&format!("everyone is served after {served:?}"));
        scene.cluster.wait_partitions("nobody to be led by the node without followers", |rows| {
            rows.iter().all(|row| row["leader"] != victim)
        });
    });
}

/// 25: a leader and one follower do not reach each other, and both reach the coordinator: one of them leaves the Live
/// set.
#[test]
fn one_of_two_disconnected_nodes_leaves_the_live_set() {
    Scene::play(EXE, "a pair", &cluster(), &load(25), |scene| {
        for one_way in [false, true] {
            scene.cluster.links().cut(NODES[0], NODES[1]);
            if !one_way {
                scene.cluster.links().cut(NODES[1], NODES[0]);
            }
            scene.everyone_is_served();
            scene.last(LONG);
            scene.everyone_is_served();
            scene.heal();
        }
    });
}

/// Clients cut off from one node, in either direction: its partitions are unavailable to them, and nothing wrong is
/// read.
#[test]
fn clients_cut_off_from_a_node_read_nothing_wrong() {
    Scene::play(EXE, "no clients", &cluster(), &load(2), |scene| {
        scene.cluster.links().cut(CLIENTS, NODES[0]);
        scene.last(LONG);
        scene.cluster.links().mend(CLIENTS, NODES[0]);
        scene.everyone_is_served();
        // Requests arrive and take effect; the answers are lost.
        scene.cluster.links().cut(NODES[0], CLIENTS);
        scene.last(LONG);
    });
}

/// 26 and 27: the leading coordinator in the minority, then a quorum connected only through one voter.
#[test]
fn clients_are_served_with_minority_or_bridged_coordinators() {
    Scene::play(EXE, "quorum", &cluster(), &load(26), |scene| {
        let names = coordinators();
        let (leader, _) = scene.cluster.wait_leader();
        scene.say(&format!("{} leads and is cut off from the other two", names[leader]));
        for other in (0..3).filter(|index| *index != leader) {
            scene.cluster.links().cut_both(&names[leader], &names[other]);
        }
        scene.last(LONG);
        scene.everyone_is_served();
        scene.heal();
        let (leader, _) = scene.cluster.wait_leader();
        scene.say(&format!("{} leads and hears only one of the other two", names[leader]));
        scene.cluster.links().cut_both(&names[leader], &names[(leader + 1) % 3]);
        scene.last(LONG);
        scene.everyone_is_served();
    });
}

/// 32: a node's links fail and recover every second.
#[test]
fn flapping_link_leaves_histories_linearizable() {
    Scene::play(EXE, "flapping", &cluster(), &load(32), |scene| {
        for round in 0..5 {
            for other in coordinators().iter().map(String::as_str).chain(others(NODES[round % 3])) {
                scene.cluster.links().cut_both(NODES[round % 3], other);
            }
            scene.last(Duration::from_millis(1_000));
            scene.cluster.links().mend_everything();
            scene.last(Duration::from_millis(1_000));
        }
    });
}

/// 31 and 44: a node behind a slow link, which is killed, misses much, and catches up over that link.
#[test]
fn node_behind_slow_link_catches_up() {
    Scene::play(EXE, "slow", &cluster(), &load(31), |scene| {
        scene.cluster.links().slow(NODES[1], Some(250_000));
        scene.progress(200);
        scene.cluster.take_node(NODES[1]).kill();
        scene.cluster.wait_node(NODES[1], "failed");
        scene.progress(400);
        scene.cluster.start_node(NODES[1]);
        scene.cluster.wait_node(NODES[1], "alive");
        scene.everyone_is_served();
    });
}

/// 22, with relays: half of the nodes still reach each other, and relay for each other; no coordinator answers them, so
/// each stops when its lease ends, and no later answer of theirs counts.
#[test]
fn isolated_half_with_relays_stops_at_lease_end() {
    let six = vec!["athens", "byzantium", "cyrene", "delphi", "ephesus", "gela"];
    let options = Options { nodes: six.clone(), nodes_min: six.len(), ..cluster() };
    Scene::play(EXE, "half", &options, &load(60), |scene| {
        scene.cluster.wait_protocol(2);
        scene.cluster.done(&["config", "set", "relays_from=2"]);
        let (half, rest) = six.split_at(3);
        scene.cluster.wait_json("heartbeats to be carried", LONG * 5, &["node", "list"], |listed| {
            listed.as_array().into_iter().flatten().filter(|row| row["via"].is_string()).count() >= 3
        });
        scene.say(&format!("cut {half:?} off from the coordinators and the other nodes"));
        for victim in half {
            for other in coordinators().iter().map(String::as_str).chain(rest.iter().copied()) {
                scene.cluster.links().cut_both(victim, other);
            }
        }
        for victim in half {
            let took = scene.cluster.wait_node(victim, "failed");
            scene.say(&format!("{victim} is failed after another {took:?}"));
        }
        scene.last(LONG);
        scene.heal();
    });
}
