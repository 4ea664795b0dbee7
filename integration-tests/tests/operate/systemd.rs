//! Notifications to systemd by members that it started with `Type=notify`: real processes, and a socket in systemd's
//! place.

use crate::EXE;
use archon_integration_tests::NotifiedMember;
use archon_integration_tests::ports::free_addresses;
use archon_testkit::{check, wait_for};
use std::time::Duration;
use tempfile::TempDir;

#[test]
fn node_is_reported_ready_only_with_a_lease() {
    let directory = TempDir::new().expect("a directory");
    let addresses = free_addresses(2);
    let (coordinator_at, node_at) = (addresses[0].as_str(), addresses[1].as_str());
    let peers = format!("1={coordinator_at}");
    let node = ["node", "--name", "athens", "--listen", node_at, "--coordinators", coordinator_at];
    let node = NotifiedMember::start(EXE, "athens", &node, directory.path());
    node.wait("STATUS=waits: node athens is not registered");
    assert!(!node.has("READY=1"), "{:?}", node.heard());
    let alone = ["--partitions", "2", "--replication", "1", "--min-nodes", "1"];
    let coordinator = ["coordinator", "--id", "1", "--listen", coordinator_at, "--peers", &peers];
    let coordinator = NotifiedMember::start(EXE, "c1", &[&coordinator[..], &alone].concat(), directory.path());
    coordinator.wait("READY=1");
    coordinator.wait("STATUS=takes part in its cluster");
    node.wait("READY=1");
    node.wait("STATUS=takes part in its cluster");
    assert!(node.stop() > Duration::from_secs(10), "as long as leaderships may take to be handed over");
    coordinator.stop();
}

/// Regression: each of three units on three machines would wait for the others, and systemd would end it.
#[test]
fn waiting_coordinator_is_ready_and_names_awaited_peers() {
    let directory = TempDir::new().expect("a directory");
    let addresses = free_addresses(3);
    let peers = format!("1={},2={},3={}", addresses[0], addresses[1], addresses[2]);
    let coordinator = ["coordinator", "--id", "1", "--listen", &addresses[0], "--peers", &peers];
    let coordinator = NotifiedMember::start(EXE, "c1", &coordinator, directory.path());
    coordinator.wait("READY=1");
    wait_for("a missing one to be named", Duration::from_secs(60), || {
        let heard = coordinator.heard();
        let waits = |line: &&String| line.starts_with("STATUS=waits") && line.contains(&addresses[2]);
        check(heard.iter().any(|line| waits(&line)), || format!("{heard:?}"))
    });
    coordinator.stop();
}
