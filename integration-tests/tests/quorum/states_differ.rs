//! A coordinator whose state differs from the others', though it applied the same log.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Position of the checksum in a snapshot file: after its magic, its format and two lengths. It covers everything that
/// follows.
const CHECKSUM: std::ops::Range<usize> = 24..28;

/// Returns the single snapshot of a coordinator.
fn snapshot(data: &Path) -> Result<PathBuf, String> {
    let files = fs::read_dir(data.join("snapshots")).map_err(|error| error.to_string())?;
    let mut found =
        files.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "snap"));
    found.next().ok_or_else(|| format!("no snapshot in {}", data.display()))
}

/// Falsifies a file and its checksum, as a disk does that returns wrong data and reports success.
fn falsify(file: &Path, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut content = fs::read(file).expect("a file");
    let at = content.windows(from.len()).position(|window| window == from).expect("what is to be changed");
    content[at..at + to.len()].copy_from_slice(to);
    let checksum = crc32c::crc32c(&content[CHECKSUM.end..]);
    content[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    fs::write(file, content).expect("it is written");
}

#[test]
fn voter_with_diverged_state_ends() {
    let nodes = vec!["athens"];
    let mut cluster =
        Cluster::start(EXE, &Options { coordinators: 1, nodes, nodes_min: 1, partitions: 1, ..Options::default() });
    cluster.wait_protocol(2);
    cluster.done(&["table", "create", "orders", "--partitions", "1", "--replication", "1"]);
    // Recovered coordinators have no earlier log: those that join install a snapshot.
    let left = cluster.put_aside(1, "left");
    cluster.recover(1, &left, &[]);
    cluster.wait_recovered(2);
    for _ in 0..2 {
        cluster.join_coordinator(&[]);
    }
    wait_for("three voters", TIMEOUT, || {
        let listed = cluster.archon(&["quorum", "list"]);
        check(listed.stdout.matches(" yes ").count() == 3, || format!("{listed:?}"))
    });
    let data = cluster.coordinator_data(3);
    let (file, _) = wait_for("a snapshot", TIMEOUT, || snapshot(&data));
    assert!(cluster.take_coordinator(2).terminate(TIMEOUT).success());
    falsify(&file, b"orders", b"ordure");
    cluster.start_coordinator(2);
    // A new leader compares all states.
    for next in [2, 1] {
        let (leader, _) = cluster.wait_leader();
        if leader + 1 != next {
            wait_for("another one to lead", TIMEOUT, || {
                let moved = cluster.archon(&["quorum", "transfer-leader", &next.to_string()]);
                check(moved.code == 0, || format!("{moved:?}"))
            });
        }
    }
    let mut wrong = cluster.take_coordinator(2);
    let (ended, _) =
        wait_for("the one that differs to end", TIMEOUT, || wrong.exited().ok_or_else(|| wrong.log_tail(20)));
    assert_eq!(ended.code(), Some(4), "{ended:?}");
    let log = wrong.log_tail(20);
    assert!(log.contains("is not that of the majority"), "{log}");
    let (mut compared_by, _) = cluster.wait_leader();
    wait_for("the others to say so", TIMEOUT, || {
        let checked = cluster.archon(&["check"]);
        let reported = checked.code == 11 && checked.stdout.contains("StatesDiffer");
        let (leader, _) = cluster.wait_leader();
        if !reported && leader != compared_by {
            // A leader that was elected since has compared nothing yet.
            compared_by = leader;
            cluster.start_coordinator(2);
            assert_eq!(cluster.take_coordinator(2).wait_exit(TIMEOUT).code(), Some(4));
        }
        check(reported, || format!("{checked:?}"))
    });
    // It ends again after a restart: its disk is wrong. Another one takes its place.
    cluster.start_coordinator(2);
    let again = cluster.take_coordinator(2).wait_exit(TIMEOUT);
    assert_eq!(again.code(), Some(4), "{again:?}");
    cluster.join_coordinator(&["--learner"]);
    wait_for("the newcomer to take its place", TIMEOUT, || {
        let replaced = cluster.archon(&["quorum", "replace", "3", "4"]);
        check(replaced.code == 0, || format!("{replaced:?}"))
    });
    wait_for("all to be well but for the recovery's number", TIMEOUT, || {
        let checked = cluster.archon(&["check"]);
        check(!checked.stdout.contains("StatesDiffer"), || format!("{checked:?}"))
    });
}
