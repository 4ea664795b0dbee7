//! Histories of clients of redis-py, and of the client library beside them, while nodes die and stop and partitions move.

use crate::EXE;
use archon_integration_tests::{Library, Options, ProcessExt, Scene, WorkloadOptions};
use std::time::{Duration, Instant};

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const NEWCOMER: &str = "delos";
/// Longer than a lease and the failure time-out together.
const LONG: Duration = Duration::from_secs(4);
/// Operations after each fault, at least.
const PROGRESS: u64 = 200;

/// Returns how long faults go on at least: one round of all of them, or as long as `ARCHON_TEST_SECONDS` demands.
fn length() -> Duration {
    let seconds = std::env::var("ARCHON_TEST_SECONDS").ok();
    Duration::from_secs(seconds.map_or(0, |seconds| seconds.parse().expect("a number of seconds")))
}

/// 8c: every call of redis-py is recorded; one without a reply may have had an effect or not. Every third key is a pair, which
/// must have one value at every moment.
#[test]
fn redis_histories_stay_linearizable_through_faults() {
    let redis = &["athens", "byzantium", "cyrene", "delos"];
    let options = Options { replication: 2, redis, tls: false, ..Options::default() };
    let load = WorkloadOptions { redis: Some(Library::RedisPy), seed: 83, ..WorkloadOptions::default() };
    let report = Scene::play(EXE, "redis", &options, &load, |scene| {
        let began = Instant::now();
        scene.cluster.start_node(NEWCOMER);
        scene.cluster.wait_node(NEWCOMER, "alive");
        // The scripts have connected.
        scene.everyone_is_served();
        for victim in NODES.into_iter().cycle() {
            scene.say(&format!("kill {victim}"));
            scene.cluster.take_node(victim).kill();
            scene.everyone_is_served();
            scene.progress(PROGRESS);
            scene.cluster.start_node(victim);
            scene.wait_whole();
            scene.say(&format!("drain {victim}, while it moves its partitions away"));
            scene.cluster.done(&["node", "drain", victim, "--wait"]);
            scene.progress(PROGRESS);
            scene.say("pause the newcomer");
            scene.cluster.node(NEWCOMER).pause();
            scene.everyone_is_served();
            scene.progress(PROGRESS);
            scene.last(LONG);
            scene.cluster.node(NEWCOMER).resume();
            scene.everyone_is_served();
            scene.wait_whole();
            scene.say(&format!("undrain {victim}"));
            scene.cluster.done(&["node", "undrain", victim]);
            scene.cluster.done(&["rebalance", "apply", "--wait"]);
            scene.progress(PROGRESS);
            scene.say("stop the newcomer");
            let status = scene.cluster.take_node(NEWCOMER).terminate(Duration::from_secs(60));
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
    let (answered, replaced, paired) = (report.answered_by_redis, report.replaced(), report.answered_on_pairs);
    let counts =
        format!("{answered} operations by Redis listeners, {replaced} replacements, {paired} on pairs of keys");
    println!("{counts}, {} without a reply", report.open());
    assert!(answered > PROGRESS && replaced > 0 && paired > 0, "{counts}");
}
