//! Cut, one-way, slow and flapping links, with three copies on three nodes. Packets are lost in the router between the
//! members' network namespaces; it needs root, and says so where it is skipped. The numbers are those of the fault
//! catalogue in `docs/FAULTS.md`.

use crate::EXE;
use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::wait::check;
use archon_integration_tests::{CLIENTS, Network, Options, Scene, WorkloadOptions, wait_for};
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

/// 22: cut off from everyone, a leader stops when its lease is over, and a successor serves.
#[test]
fn a_node_cut_off_from_everyone_is_succeeded() {
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

/// 24: it sends and hears nothing: its lease, counted from sending, ends all the same. Then the other way round.
#[test]
fn a_node_that_hears_nothing_and_one_that_nobody_hears() {
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

/// 22, 24 and 56: a deposed leader that nobody could tell of it; a client that knows only this node, and hears no
/// coordinator, reads nothing stale from it.
#[test]
fn a_client_that_knows_only_a_deposed_leader_reads_nothing_stale() {
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

/// 34, for one node: cut off from the quorum only. It is failed, and what it led is led by others, whom it hears.
#[test]
fn a_node_cut_off_from_the_quorum_only() {
    Scene::play(EXE, "no quorum", &cluster(), &load(34), |scene| {
        for coordinator in coordinators() {
            scene.cluster.links().cut_both(NODES[1], &coordinator);
        }
        scene.cluster.wait_node(NODES[1], "failed");
        scene.everyone_is_served();
        // What it led has been led by others for a while now, and it still reaches clients and peers.
        scene.last(LONG);
    });
}

fn cut_from_followers(scene: &mut Scene, name: &str) {
    for other in others(name) {
        scene.cluster.links().cut_both(name, other);
    }
}

/// How many copies of a listed partition are Live.
fn live_copies(row: &Value) -> usize {
    let copies = row["copies"].as_array().into_iter().flatten();
    copies.filter(|copy| copy["state"] == "live").count()
}

/// 23: it reaches coordinators and clients, but not the other nodes: the Live sets stay at two or more, nothing wrong is
/// read, and what it could not commit goes on when the links are mended.
#[test]
fn a_leader_cut_off_from_its_followers_only() {
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
fn a_leader_cut_off_from_its_followers_only_is_succeeded() {
    Scene::play(EXE, "no followers, succeeded", &cluster(), &load(123), |scene| {
        cut_from_followers(scene, NODES[2]);
        let served = scene.everyone_is_served();
        scene.say(&format!("everyone is served after {served:?}"));
        scene.cluster.wait_partitions("nobody to be led by the node without followers", |rows| {
            rows.iter().all(|row| row["leader"] != NODES[2])
        });
    });
}

/// 23 again, one follower after the other: the first is dropped, the second may not be. It is the one that takes over, and
/// it adds the dropped copy meanwhile.
#[test]
fn a_leader_cut_off_from_one_follower_after_the_other_is_succeeded() {
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

/// 25: a leader and one follower do not hear each other, and both see the coordinator: one of them leaves the Live set.
#[test]
fn two_nodes_that_do_not_hear_each_other() {
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

/// Clients cut off from one node, in either direction: what it leads they cannot have, and nothing wrong is read.
#[test]
fn clients_cut_off_from_a_node() {
    Scene::play(EXE, "no clients", &cluster(), &load(2), |scene| {
        scene.cluster.links().cut(CLIENTS, NODES[0]);
        scene.last(LONG);
        scene.cluster.links().mend(CLIENTS, NODES[0]);
        scene.everyone_is_served();
        // Requests arrive and take effect; the answers do not come.
        scene.cluster.links().cut(NODES[0], CLIENTS);
        scene.last(LONG);
    });
}

/// 26 and 27: the leading coordinator in the minority, then a quorum that one voter alone holds together.
#[test]
fn coordinators_in_a_minority_and_over_a_bridge() {
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

/// 32: a node's links go and come every second.
#[test]
fn a_flapping_link() {
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
fn a_node_behind_a_slow_link() {
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

/// 22, with relays: half of the nodes go on hearing each other, and relay for each other; no coordinator answers them, so each stops when its
/// lease is over, and nothing that it serves afterwards is taken for true.
#[test]
fn half_of_the_nodes_cut_off_with_relays_of_their_own() {
    let six = vec!["athens", "byzantium", "cyrene", "delphi", "ephesus", "gela"];
    let options = Options { nodes: six.clone(), nodes_min: six.len(), ..cluster() };
    Scene::play(EXE, "half", &options, &load(60), |scene| {
        scene.cluster.wait_protocol(2);
        scene.cluster.done(&["config", "set", "relays_from=2"]);
        let (half, rest) = six.split_at(3);
        wait_for("heartbeats to be carried", LONG * 5, || {
            let listed = scene.cluster.json(&["node", "list"])?;
            let carried = listed.as_array().into_iter().flatten().filter(|row| row["via"].is_string()).count();
            check(carried >= 3, || listed.to_string())
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
