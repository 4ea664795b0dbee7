//! One of three copies on a disk that is full, fails or is slow: the others serve, and it returns whole. The faults
//! come from outside, by a small file system and by `strace`; a machine that allows neither skips these tests with a
//! message.

use crate::EXE;
use archon_integration_tests::disk::{DURABLE_CALLS, Injection, SmallDisk, fill};
use archon_integration_tests::{Options, ProcessExt, Scene, WorkloadOptions};
use archon_testkit::skipped;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const VICTIM: &str = "delos";
const SIGABRT: i32 = 6;

fn three_copies() -> Options {
    Options { replication: 3, ..Options::default() }
}

fn load(seed: u64) -> WorkloadOptions {
    WorkloadOptions { seed, ..WorkloadOptions::default() }
}

/// 11: a durable write fails: the process ends, is succeeded, and a new one returns with the same data as the others.
#[test]
fn node_with_failing_fsync_ends_and_returns_whole() {
    Scene::play(EXE, "eio", &three_copies(), &load(11), |scene| {
        for round in 0..2 {
            let inject = format!("{DURABLE_CALLS}:error=EIO:when=20");
            let injection = Injection::start(scene.cluster.node("athens").pid(), &[&inject]);
            if injection.is_none() {
                skipped("this machine does not let a test trace a process");
                return;
            }
            let mut process = scene.cluster.take_node("athens");
            let status = process.wait_exit(Duration::from_secs(60));
            assert_eq!(status.signal(), Some(SIGABRT), "round {round}, {status}: {}", process.log_tail(20));
            drop(injection);
            scene.everyone_is_served();
            scene.heal();
        }
    });
}

/// 18: every durable write of a node takes 2 s: it leaves the Live sets by commit, and returns when its disk is well.
#[test]
fn node_with_slow_fsync_leaves_live_sets_and_returns() {
    Scene::play(EXE, "slow fsync", &three_copies(), &load(18), |scene| {
        let pid = scene.cluster.node("byzantium").pid();
        let Some(injection) = Injection::start(pid, &[&format!("{DURABLE_CALLS}:delay_enter=2000000")]) else {
            skipped("this machine does not let a test trace a process");
            return;
        };
        scene.last(Duration::from_secs(6));
        scene.everyone_is_served();
        drop(injection);
    });
}

/// 12: the disk of a node that leads and follows is full: writes to its partitions are refused at once and reads work,
/// the others' writes continue without it, and it returns when there is space again.
#[test]
fn node_with_full_disk_refuses_writes_and_returns() {
    let options = Options { nodes: vec!["athens", "byzantium"], nodes_min: 2, replication: 2, ..Options::default() };
    Scene::play(EXE, "full", &options, &load(12), |scene| {
        let data = scene.cluster.directory().join(format!("node-{VICTIM}"));
        let Some(disk) = SmallDisk::mount(&data, 256) else {
            skipped("this machine does not let a test mount a file system");
            return;
        };
        scene.cluster.start_node(VICTIM);
        scene.cluster.wait_node(VICTIM, "alive");
        let applied = scene.cluster.archon(&["rebalance", "apply", "--wait", "--timeout", "60s"]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        scene.cluster.wait_rebalanced();
        assert!(scene.cluster.partitions_per_node()[VICTIM] > 0, "it has nothing to lose");
        let ballast = fill(&data);
        scene.say("the disk is full");
        // More than the log's prepared space, to every partition.
        let refused = scene.write_until_refused(64 * 1024, Duration::from_secs(20));
        scene.say(&format!("refused: {refused:?}"));
        assert!(refused.is_some_and(|said| said.contains("ReadOnly")), "a full disk must show");
        scene.progress(100);
        fs::remove_file(ballast).expect("removed");
        scene.say("there is space again");
        scene.everyone_is_served();
        scene.heal();
        scene.keep(disk);
    });
}
