//! Histories of clients of redis-py, and of the client library beside them, while nodes die and stop and partitions move.

use crate::EXE;
use archon_integration_tests::{Ending, Library, Options, Scene, WorkloadOptions};
use std::time::{Duration, Instant};

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const NEWCOMER: &str = "delos";
/// Longer than a lease and the failure time-out together.
const LONG: Duration = Duration::from_secs(4);
/// Fewer than any run had.
const JUDGED_MIN: u64 = 1_000;

/// Returns how long faults go on at least: one round of all of them, or as long as `ARCHON_TEST_SECONDS` demands.
fn length() -> Duration {
    let seconds = std::env::var("ARCHON_TEST_SECONDS").ok();
    Duration::from_secs(seconds.map_or(0, |seconds| seconds.parse().expect("a number of seconds")))
}

fn apply_rebalance(scene: &Scene) {
    let applied = scene.cluster.archon(&["rebalance", "apply", "--wait", "--timeout", "60s"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// 8c: every call of redis-py is recorded; one without a reply may have had an effect or not.
#[test]
fn redis_histories_stay_linearizable_through_faults() {
    let redis = &["athens", "byzantium", "cyrene", "delos"];
    let options = Options { replication: 2, redis, tls: false, ..Options::default() };
    let load = WorkloadOptions { redis: Some(Library::RedisPy), seed: 83, ..WorkloadOptions::default() };
    let report = Scene::play(EXE, "redis", &options, &load, |scene| {
        let began = Instant::now();
        scene.cluster.start_node(NEWCOMER);
        scene.cluster.wait_node(NEWCOMER, "alive");
        for victim in NODES.into_iter().cycle() {
            scene.say(&format!("kill {victim}"));
            scene.cluster.take_node(victim).kill();
            scene.everyone_is_served();
            scene.cluster.start_node(victim);
            scene.wait_whole();
            scene.say(&format!("drain {victim}, while it moves its partitions away"));
            let drained = scene.cluster.archon(&["node", "drain", victim, "--wait", "--wait-timeout", "60s"]);
            assert_eq!(drained.code, 0, "{}", drained.stderr);
            scene.say("pause the newcomer");
            scene.cluster.node(NEWCOMER).pause();
            scene.everyone_is_served();
            scene.last(LONG);
            scene.cluster.node(NEWCOMER).resume();
            scene.everyone_is_served();
            scene.wait_whole();
            scene.say(&format!("undrain {victim}"));
            let undrained = scene.cluster.archon(&["node", "undrain", victim]);
            assert_eq!(undrained.code, 0, "{}", undrained.stderr);
            apply_rebalance(scene);
            scene.say("stop the newcomer");
            let status = scene.cluster.take_node(NEWCOMER).terminate(Duration::from_secs(30));
            assert!(status.success(), "{status}");
            scene.everyone_is_served();
            scene.cluster.start_node(NEWCOMER);
            scene.wait_whole();
            if began.elapsed() >= length() {
                break;
            }
        }
    });
    let Some(report) = report else { return };
    println!("{} operations by Redis listeners, {} without a reply", report.answered_by_redis, report.open());
    assert!(report.answered_by_redis > JUDGED_MIN, "{} operations", report.answered_by_redis);
}
