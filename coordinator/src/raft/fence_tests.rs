//! What keeps an old decision, or a voter that lost its disk, from having an effect.

use super::propose::Proposal;
use super::wire::{Myself, open_answer};
use crate::{Coordinator, CoordinatorConfig};
use archon_coordinator_core::{Actor, ClusterState, Command, CommandBatch};
use archon_types::{ErrorKind, Millis, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use uuid::Uuid;

fn create(name: &str) -> Command {
    Command::CreateTable { name: name.to_owned(), partitions: 3, replication: 1 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_another_term_is_void() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = listener.local_addr().unwrap();
    let config = CoordinatorConfig {
        id: 1,
        listen,
        peers: [(1, listen.to_string())].into(),
        data_dir: dir.path().to_path_buf(),
        settings: Settings::default(),
    };
    let coordinator = Coordinator::start(listener, config).await.unwrap();
    let begun = Instant::now();
    while !coordinator.is_leading() {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody leads");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let quorum = coordinator.quorum().unwrap().clone();
    let term = quorum.leading_term().unwrap();
    let tables = || quorum.replicated().read(|state: &ClusterState| state.tables.len());
    let before = tables();

    // Proposed under a term that is not ours: it never reaches the log.
    let who = Actor::Coordinator(1);
    let old = Proposal { term: term + 1, request: None, who: who.clone(), commands: vec![create("old")] };
    let refused = quorum.propose(old, Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoQuorum, "{refused}");
    // In the log nevertheless: applying voids it.
    let batch = CommandBatch {
        request: None,
        at: Millis::ZERO,
        who: who.clone(),
        proposer: 1,
        term: term + 1,
        commands: vec![create("older")],
    };
    let answer = quorum.raft.client_write(Arc::new(batch)).await.unwrap();
    assert!(answer.data.void && answer.data.responses.is_empty());
    assert_eq!(tables(), before);
    // Ours holds.
    let ours = Proposal { term, request: None, who, commands: vec![create("ours")] };
    quorum.propose(ours, Duration::from_secs(2)).await.unwrap();
    assert_eq!(tables(), before + 1);
    drop(quorum);
    coordinator.stop().await;
}

#[test]
fn messages_of_the_wrong_quorum_target_or_disk_are_refused() {
    let sender = Myself { id: 2, storage: Uuid::from_u128(22), quorum: Uuid::from_u128(9) };
    let receiver = Myself { id: 1, storage: Uuid::from_u128(11), quorum: Uuid::from_u128(9) };
    let known: BTreeMap<u64, Uuid> = [(1, Uuid::from_u128(11)), (2, Uuid::from_u128(22))].into();
    let open = |sender: &Myself, target| {
        let message = sender.message(target, "number", &7u64).unwrap();
        receiver.open::<u64>("number", &message, &known)
    };
    assert_eq!(open(&sender, 1).unwrap(), 7);
    let refused = |sender: Myself, target| open(&sender, target).unwrap_err().message().to_owned();
    assert!(refused(sender.clone(), 3).contains("is for 3"));
    assert!(refused(Myself { quorum: Uuid::from_u128(8), ..sender.clone() }, 1).contains("another peer list"));
    assert!(refused(Myself { storage: Uuid::from_u128(23), ..sender.clone() }, 1).contains("does not rejoin"));
    assert!(refused(Myself { id: 1, ..sender.clone() }, 1).contains("heard from itself"));
    let answer = sender.message(1, "number", &7u64).unwrap();
    assert_eq!(open_answer::<u64>("number", &answer, 2, sender.storage).unwrap(), 7);
    assert!(open_answer::<u64>("number", &answer, 2, Uuid::from_u128(23)).is_err());
    assert!(open_answer::<u64>("number", &answer, 3, sender.storage).is_err());
    let mut newer = sender.message(1, "number", &7u64).unwrap();
    newer.format += 1;
    assert!(receiver.open::<u64>("number", &newer, &known).unwrap_err().message().contains("format 2"));
}
