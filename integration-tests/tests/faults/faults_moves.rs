//! Rebalances and drains while nodes and coordinators die: 51, 52, 53, 55 and 58 of the fault catalogue.

use crate::EXE;
use archon_integration_tests::{Options, Scene, WorkloadOptions};
use std::time::Duration;

fn three_copies() -> Options {
    Options { replication: 3, ..Options::default() }
}

fn load(seed: u64) -> WorkloadOptions {
    WorkloadOptions { seed, ..WorkloadOptions::default() }
}

fn join_and_apply(scene: &mut Scene, name: &str) {
    scene.cluster.start_node(name);
    scene.cluster.wait_node(name, "alive");
    let applied = scene.cluster.archon(&["rebalance", "apply", "--timeout", "20s"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    scene.say(&format!("{name} joined, and a rebalance began"));
}

/// 51 to 53 and 55: while copies move to a fourth node, the leading coordinator, a source and the target die.
#[test]
fn rebalance_survives_deaths_of_its_parts() {
    Scene::play(EXE, "rebalance", &three_copies(), &load(51), |scene| {
        join_and_apply(scene, "delos");
        let (leader, _) = scene.cluster.wait_leader();
        scene.cluster.take_coordinator(leader).kill();
        scene.cluster.wait_leader();
        scene.cluster.start_coordinator(leader);
        scene.cluster.take_node("athens").kill();
        scene.everyone_is_served();
        scene.cluster.start_node("athens");
        scene.cluster.take_node("delos").kill();
        scene.everyone_is_served();
        scene.cluster.start_node("delos");
        scene.cluster.wait_rebalanced();
        scene.heal();
        // The result is a valid plan; the rest can be applied now.
        let again = scene.cluster.archon(&["rebalance", "apply", "--wait", "--timeout", "60s"]);
        assert_eq!(again.code, 0, "{}", again.stderr);
        scene.cluster.wait_rebalanced();
    });
}

/// 58: a node dies during its drain.
#[test]
fn drain_survives_death_of_its_node() {
    Scene::play(EXE, "drain", &three_copies(), &load(58), |scene| {
        scene.cluster.start_node("delos");
        scene.cluster.wait_node("delos", "alive");
        let drained = scene.cluster.archon(&["node", "drain", "byzantium", "--timeout", "20s"]);
        assert_eq!(drained.code, 0, "{}", drained.stderr);
        scene.last(Duration::from_millis(300));
        scene.cluster.take_node("byzantium").kill();
        scene.everyone_is_served();
        scene.cluster.start_node("byzantium");
        scene.everyone_is_served();
        let rows = |rows: &[serde_json::Value]| {
            rows.iter().all(|row| {
                let copies = row["copies"].as_array().into_iter().flatten();
                copies.filter(|copy| copy["node"] == "byzantium").count() == 0
            })
        };
        scene.cluster.wait_partitions("the drained node to hold nothing", rows);
    });
}
