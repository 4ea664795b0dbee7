//! Tests of wake-ups of a table's long polls by log entries.

use crate::Coordinator;
use crate::raft::quorum::propose::Proposal;
use crate::raft::quorum::test_founders::{founder, listening};
use archon_coordinator_core::{Actor, ClusterState, Command};
use archon_testkit::ScratchDirectory;
use archon_types::{Partitioning, TableContent};
use std::time::{Duration, Instant};

/// Every entry woke every poll, and each then held the state's lock: a change cost 4 microseconds for each poll.
#[tokio::test(flavor = "multi_thread")]
async fn polls_are_woken_by_changes_of_their_own_table() {
    let dir = ScratchDirectory::in_memory().unwrap();
    let (peers, mut listeners) = listening(1).await;
    let (id, listener) = listeners.remove(0);
    let coordinator = Coordinator::start(listener, founder(id, &peers, dir.path())).await.unwrap();
    let begun = Instant::now();
    while !coordinator.is_leading() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no leader");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let quorum = coordinator.quorum().unwrap().clone();
    let propose = async |command: Command| {
        let term = quorum.leading_term().unwrap();
        let proposal = Proposal { term, request: None, who: Actor::Coordinator(1), commands: vec![command] };
        quorum.propose(proposal, Duration::from_secs(5)).await.unwrap();
    };
    let create = |name: &str| Command::CreateTable {
        name: name.to_owned(),
        partitioning: Partitioning::Hash { partitions: 3 },
        replication: 1,
        holds: TableContent::Data,
    };
    let table =
        |name: &str| quorum.replicated().read(|state: &ClusterState| state.table_by_name(name).map(|row| row.id));
    propose(create("polled")).await;
    let polled = table("polled").unwrap();
    let (mut versions, applied) = (quorum.replicated().table_versions(polled), quorum.replicated().applied());
    assert!(versions.borrow_and_update().table.is_some());

    propose(create("other")).await;
    assert!(applied.has_changed().unwrap() && !versions.has_changed().unwrap(), "a change of another table");

    propose(Command::DropTable { table: polled }).await;
    let told = tokio::time::timeout(Duration::from_secs(60), versions.changed()).await;
    assert!(told.is_ok() && versions.borrow_and_update().table.is_none(), "the table was dropped");

    drop(versions);
    drop(quorum);
    coordinator.stop().await;
}
