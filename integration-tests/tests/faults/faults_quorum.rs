//! 34: the data plane outlives the quorum. All three coordinators are stopped; reads and writes continue. Then a node
//! dies: its partitions wait, the others serve; the quorum returns: everything heals by itself.
//!
//! `ARCHON_QUORUM_DOWN_S` is how long the quorum is away before the node dies; 20 s by default.

use crate::EXE;
use archon_integration_tests::{Options, Scene, WorkloadOptions};
use std::time::Duration;

fn quorum_down() -> Duration {
    let said = std::env::var("ARCHON_QUORUM_DOWN_S").ok();
    Duration::from_secs(said.map_or(20, |text| text.parse().expect("ARCHON_QUORUM_DOWN_S is a number of seconds")))
}

fn three_copies() -> Options {
    Options { replication: 3, ..Options::default() }
}

#[test]
fn reads_and_writes_continue_while_the_quorum_is_stopped() {
    let load = WorkloadOptions { seed: 34, hasty: Duration::from_secs(15), ..WorkloadOptions::default() };
    let report = Scene::play(EXE, "no quorum", &three_copies(), &load, |scene| {
        for index in 0..3 {
            scene.cluster.take_coordinator(index).ask_to_end();
        }
        let ends = quorum_down();
        scene.say(&format!("all coordinators are asked to end; {ends:?} without them"));
        let before = scene.answered();
        for _ in 0..ends.as_secs() {
            scene.last(Duration::from_secs(1));
            scene.everyone_is_served();
        }
        scene.say(&format!("{} operations without a quorum, {} failed", scene.answered() - before, scene.failed()));
        assert_eq!(scene.failed(), 0, "no read and no write fails");
    });
    report.expect("loopback is always there").assert_no_failure();
}

#[test]
fn node_death_without_quorum_heals_when_quorum_returns() {
    let load = WorkloadOptions { seed: 134, ..WorkloadOptions::default() };
    Scene::play(EXE, "no quorum and a dead node", &three_copies(), &load, |scene| {
        let led_by_others = |rows: &[serde_json::Value]| rows.iter().filter(|row| row["leader"] != "cyrene").count();
        scene.cluster.wait_partitions("others to lead something", |rows| led_by_others(rows) > 0);
        for index in 0..3 {
            scene.cluster.take_coordinator(index).kill();
        }
        scene.last(Duration::from_secs(3));
        scene.cluster.take_node("cyrene").kill();
        scene.say("cyrene is killed without a quorum");
        scene.last(Duration::from_secs(5));
        for index in 0..3 {
            scene.cluster.start_coordinator(index);
        }
        // Still without the node: its leaderships move, and it leaves the Live sets.
        let served = scene.everyone_is_served();
        scene.say(&format!("the quorum is back: everyone is served after {served:?}"));
        scene.progress(100);
    });
}
