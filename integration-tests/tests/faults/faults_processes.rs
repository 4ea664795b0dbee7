//! Processes that are killed, paused and stopped, with three copies on three nodes, and two on three. The numbers are
//! those of the fault catalogue in `docs/design/faults.md`.

use crate::EXE;
use archon_integration_tests::options::LONG_LEASES;
use archon_integration_tests::{Options, ProcessExt, Scene, WorkloadOptions};
use archon_testkit::Random;
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// Longer than a lease and the failure time-out together.
const LONG: Duration = Duration::from_secs(4);

fn three_copies() -> Options {
    Options { replication: 3, ..Options::default() }
}

fn load(seed: u64) -> WorkloadOptions {
    WorkloadOptions { seed, ..WorkloadOptions::default() }
}

/// 1, 2 and 3: each node is killed during writes it leads and follows, and returns.
#[test]
fn nodes_killed_in_turn_return_whole() {
    Scene::play(EXE, "killed", &three_copies(), &load(1), |scene| {
        for victim in NODES {
            scene.cluster.take_node(victim).kill();
            let served = scene.everyone_is_served();
            scene.say(&format!("killed {victim}: everyone is served after {served:?}"));
            scene.progress(100);
            scene.heal();
        }
    });
}

/// 1 to 3 with two copies: one may be lost, and the other serves.
#[test]
fn node_killed_with_two_copies_leaves_the_other_serving() {
    let options = Options { replication: 2, ..Options::default() };
    Scene::play(EXE, "two copies", &options, &load(102), |scene| {
        for victim in [NODES[0], NODES[2]] {
            scene.cluster.take_node(victim).kill();
            scene.everyone_is_served();
            scene.progress(100);
            scene.heal();
        }
    });
}

/// 4: every process at once, twice; the second time while it recovers from the first (5).
#[test]
fn everything_killed_twice_recovers() {
    Scene::play(EXE, "everything", &three_copies(), &load(4), |scene| {
        scene.cluster.kill_everything();
        scene.cluster.start_everything();
        scene.cluster.wait_leader();
        scene.cluster.kill_everything();
        scene.cluster.start_everything();
    });
}

/// 8: a node that dies as soon as it is up, repeatedly, does not disturb the others' leaderships.
#[test]
fn crash_looping_node_disturbs_no_other_leadership() {
    Scene::play(EXE, "crash loop", &three_copies(), &load(8), |scene| {
        let mut dice = Random::new(8);
        for _ in 0..8 {
            scene.cluster.take_node(NODES[0]).kill();
            scene.cluster.start_node(NODES[0]);
            scene.last(dice.millis(200, 1_200));
        }
        scene.everyone_is_served();
    });
}

/// 30 and 37: a node is paused for longer than its lease and the failure time-out, and wakes with requests and old
/// leaderships pending; then two nodes at once.
#[test]
fn woken_nodes_answer_nothing_stale() {
    Scene::play(EXE, "paused", &three_copies(), &load(37), |scene| {
        for victim in [NODES[0], NODES[2]] {
            scene.cluster.node(victim).pause();
            scene.everyone_is_served();
            scene.last(LONG);
            scene.cluster.node(victim).resume();
            scene.last(Duration::from_millis(500));
        }
        scene.heal();
        scene.say("two nodes at once");
        scene.cluster.node(NODES[0]).pause();
        scene.cluster.node(NODES[1]).pause();
        scene.last(LONG);
    });
}

/// 7 and 38: the leading coordinator is killed, the next is paused and wakes, the next is stopped; no node fails for
/// it.
#[test]
fn lost_coordinator_leaders_fail_no_node() {
    let patient = WorkloadOptions { hasty: Duration::from_secs(15), ..load(7) };
    let lasting = Options { timing: Some(LONG_LEASES), ..three_copies() };
    Scene::play(EXE, "coordinators", &lasting, &patient, |scene| {
        let (leader, _) = scene.cluster.wait_leader();
        scene.cluster.take_coordinator(leader).kill();
        scene.cluster.wait_leader();
        scene.cluster.start_coordinator(leader);
        let (leader, _) = scene.cluster.wait_leader();
        scene.cluster.coordinator(leader).pause();
        // Without leases of another leader, nodes would fail meanwhile.
        scene.last(Duration::from_millis(LONG_LEASES.failure_timeout_ms * 6 / 5));
        scene.cluster.coordinator(leader).resume();
        let (leader, _) = scene.cluster.wait_leader();
        let status = scene.cluster.take_coordinator(leader).terminate(Duration::from_secs(60));
        assert!(status.success(), "{status}");
        scene.cluster.wait_leader();
        assert_eq!(scene.failed(), 0, "the data plane does not feel it");
        let events = scene.cluster.json(&["events"]).expect("events").to_string();
        assert!(!events.contains("node_failed"), "{events}");
    });
}

/// A node killed together with the leading coordinator, while no successors can be named.
#[test]
fn node_and_leading_coordinator_killed_together_recover() {
    Scene::play(EXE, "both planes", &three_copies(), &load(107), |scene| {
        let (leader, _) = scene.cluster.wait_leader();
        scene.cluster.take_coordinator(leader).kill();
        scene.cluster.take_node(NODES[1]).kill();
        scene.everyone_is_served();
    });
}

/// SIGTERM to every node in turn, under load: its leaderships are handed over, and no operation fails.
#[test]
fn orderly_node_stops_fail_no_operation() {
    let patient = WorkloadOptions { hasty: Duration::from_secs(45), ..load(15) };
    let report = Scene::play(EXE, "ended", &three_copies(), &patient, |scene| {
        for victim in NODES {
            let status = scene.cluster.take_node(victim).terminate(Duration::from_secs(60));
            assert!(status.success(), "{victim}: {status}");
            scene.everyone_is_served();
            scene.heal();
        }
    });
    report.expect("loopback is always there").assert_no_failure();
}
