//! Older copies of a coordinator's directory, started in its place or beside it: they are refused without effect on
//! others.

use crate::EXE;
use archon_integration_tests::recovering::copy_directory;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_testkit::{check, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn three() -> Cluster {
    let nodes = vec!["athens"];
    let cluster = Cluster::start(EXE, &Options { nodes, nodes_min: 1, partitions: 4, ..Options::default() });
    cluster.wait_online();
    cluster
}

/// Returns a coordinator that does not lead, from 1.
fn follower(cluster: &Cluster) -> usize {
    let (leader, _) = cluster.wait_leader();
    (1..=3).find(|id| id - 1 != leader).expect("another one")
}

/// Commits a change.
fn change(cluster: &Cluster, table: &str) {
    cluster.done(&["table", "create", table, "--partitions", "1", "--replication", "1"]);
}

/// Copies the directory of a running coordinator, as a machine image does.
fn copied(cluster: &Cluster, id: usize) -> PathBuf {
    let copy = cluster.directory().join("copy");
    cluster.coordinator(id - 1).pause();
    copy_directory(&cluster.coordinator_data(id), &copy);
    cluster.coordinator(id - 1).resume();
    copy
}

/// Returns a coordinator's stored knowledge of the others.
fn kept(cluster: &Cluster, id: usize) -> Result<Value, String> {
    let text =
        fs::read_to_string(cluster.coordinator_data(id).join("voters.json")).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Waits until all others know the end of one coordinator's log.
fn wait_known(cluster: &Cluster, id: usize) {
    let applied = cluster.json(&["quorum", "list"]).expect("a quorum")["applied_index"].as_u64();
    for other in (1..=3).filter(|other| *other != id) {
        wait_for("the others to know what it holds", TIMEOUT, || {
            let kept = kept(cluster, other)?;
            check(kept["voters"][id.to_string()]["holds"].as_u64() >= applied, || kept.to_string())
        });
    }
}

/// Waits until a coordinator is in the quorum without lag. On a busy machine it may have been elected meanwhile.
fn wait_caught_up(cluster: &Cluster, id: usize) {
    cluster.wait_json("it to have the whole log", TIMEOUT, &["quorum", "list"], |quorum| {
        let of = quorum["coordinators"].as_array().into_iter().flatten().find(|of| of["coordinator_id"] == json!(id));
        of.is_some_and(|of| of["role"] != "unreachable" && of["entries_behind"] == json!(0))
    });
}

#[test]
fn refused_older_copy_does_not_block_its_directory() {
    let mut cluster = three();
    let id = follower(&cluster);
    let copy = copied(&cluster, id);
    change(&cluster, "since");
    wait_known(&cluster, id);
    // The machine is rolled back, started twice, and then gets its own disk again.
    let own = cluster.put_aside(id, "own");
    copy_directory(&copy, &cluster.coordinator_data(id));
    for _ in 0..2 {
        cluster.start_coordinator(id - 1);
        let mut outdated = cluster.take_coordinator(id - 1);
        let (ended, _) =
            wait_for("the copy to end", TIMEOUT, || outdated.exited().ok_or_else(|| outdated.log_tail(20)));
        assert_eq!(ended.code(), Some(4), "{}", outdated.log_tail(20));
        assert!(outdated.log_tail(20).contains("is an older copy"), "{}", outdated.log_tail(20));
    }
    // The others go on, with either of them as the leader, and none has ended.
    change(&cluster, "meanwhile");
    for other in (1..=3).filter(|other| *other != id) {
        assert!(cluster.coordinator(other - 1).runs(), "coordinator {other} ended");
    }
    fs::remove_dir_all(cluster.coordinator_data(id)).expect("the copy goes");
    fs::rename(own, cluster.coordinator_data(id)).expect("the directory is back");
    cluster.start_coordinator(id - 1);
    wait_caught_up(&cluster, id);
    change(&cluster, "after");
    wait_caught_up(&cluster, id);
}

/// The watermarks are full of other voters, so that nothing distinguishes the copy from the directory.
#[test]
fn shorter_log_of_a_voter_neither_ends_nor_stalls_leader() {
    let mut cluster = three();
    let storage = "00000000-0000-0000-0000-000000000009";
    let stranger = json!({ "storage": storage, "starts": 1, "boot": storage, "holds": 1 });
    let strangers: serde_json::Map<_, _> = (100..164).map(|id| (id.to_string(), stranger.clone())).collect();
    for index in 0..3 {
        assert!(cluster.take_coordinator(index).terminate(TIMEOUT).success());
        let full = json!({ "starts": 1, "voters": strangers }).to_string();
        fs::write(cluster.coordinator_data(index + 1).join("voters.json"), full).expect("written");
    }
    for index in 0..3 {
        cluster.start_coordinator(index);
    }
    let id = follower(&cluster);
    change(&cluster, "copied");
    wait_caught_up(&cluster, id);
    let copy = copied(&cluster, id);
    change(&cluster, "since");
    wait_caught_up(&cluster, id);
    cluster.take_coordinator(id - 1).kill();
    fs::remove_dir_all(cluster.coordinator_data(id)).expect("the directory goes");
    fs::rename(copy, cluster.coordinator_data(id)).expect("the copy takes its place");
    cluster.start_coordinator(id - 1);
    wait_caught_up(&cluster, id);
    change(&cluster, "after");
    for other in 1..=3 {
        assert!(cluster.coordinator(other - 1).runs(), "coordinator {other} ended");
    }
}
