//! Tests of coordinators with differing states although they applied the same log.

use crate::Coordinator;
use crate::error::CoordinatorError;
use crate::raft::log::codec;
use crate::raft::quorum::test_founders::{SOON, founder, listening, status_of, until};
use archon_coordinator_core::{Actor, ClusterState, Command, CommandBatch, apply};
use archon_documents::Reason;
use archon_testkit::ScratchDirectory;
use archon_types::{ClusterId, Millis, NodeId, Partitioning, ReasonCode, Settings, TableContent};
use std::collections::BTreeMap;
use std::time::Instant;
use uuid::Uuid;

struct ThreeCoordinators {
    running: BTreeMap<u64, Coordinator>,
    _dirs: Vec<ScratchDirectory>,
}

impl ThreeCoordinators {
    /// Starts three coordinators and waits until they have compared their states.
    async fn start() -> Self {
        let (peers, listeners) = listening(3).await;
        let (mut running, mut dirs) = (BTreeMap::new(), Vec::new());
        for (id, listener) in listeners {
            let dir = ScratchDirectory::in_memory().unwrap();
            let config = founder(id, &peers, dir.path());
            running.insert(id, Coordinator::start(listener, config).await.unwrap());
            dirs.push(dir);
        }
        let three = Self { running, _dirs: dirs };
        three.compared_after(0).await;
        three
    }

    async fn leader(&self) -> u64 {
        until("a leader", async || {
            let leads = self.running.values().find(|coordinator| coordinator.is_leading());
            leads.map(Coordinator::id).ok_or_else(|| "no leader".to_owned())
        })
        .await
    }

    /// Waits until a majority is known to have agreed on an entry after `index`, and returns that entry.
    async fn compared_after(&self, index: u64) -> u64 {
        until("the states to be compared", async || {
            let leader = &self.running[&self.leader().await];
            let checksums = &leader.quorum().ok_or("it starts")?.local_voter.checksums;
            let agreed = checksums.said().1.map_or(0, |agreed| agreed.index);
            if agreed > index { Ok(agreed) } else { Err(format!("{agreed} after {index}")) }
        })
        .await
    }

    /// Makes coordinator `id` lead, which starts a comparison at once.
    async fn lead(&self, id: u64) {
        until("it to lead", async || {
            let quorum = self.running[&self.leader().await].quorum().ok_or("it starts")?;
            if quorum.id() == id {
                return Ok(());
            }
            quorum.transfer_lead(Some(id)).await.map_err(|error| error.to_string())?;
            Err("not yet".to_owned())
        })
        .await;
    }

    /// Adds a row to the state of coordinator `id` that no entry made.
    fn spoil(&self, id: u64) {
        let quorum = self.running[&id].quorum().unwrap();
        quorum.replicated().spoil(|state| state.node_last = NodeId::new(state.node_last.get() + 1));
    }

    async fn ends(&mut self, id: u64) {
        let wrong = self.running.remove(&id).unwrap();
        let why = tokio::time::timeout(SOON, wrong.failed()).await.expect("it went on with a state of its own");
        assert!(matches!(why, CoordinatorError::WrongState { id: of, .. } if of == id), "{why}");
        assert!(why.to_string().contains("archon quorum replace"), "{why}");
        wrong.stop().await;
    }

    async fn reasons(&self) -> Result<Vec<Reason>, String> {
        let address = self.running[&self.leader().await].address().to_string();
        Ok(status_of(&address).await.map_err(|error| error.to_string())?.reasons)
    }

    async fn stop(self) {
        for (_, coordinator) in self.running {
            coordinator.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_with_a_different_state_ends() {
    let mut three = ThreeCoordinators::start().await;
    let leader = three.leader().await;
    let others: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
    three.spoil(others[0]);
    three.lead(others[1]).await;
    three.ends(others[0]).await;
    until("it to be named", async || {
        let reasons = three.reasons().await?;
        let named = |reason: &Reason| {
            reason.code == ReasonCode::StatesDiffer && reason.message.contains("differs from that of the majority")
        };
        if reasons.iter().any(named) { Ok(()) } else { Err(format!("{reasons:?}")) }
    })
    .await;
    for id in [leader, others[1]] {
        assert_eq!(three.running[&id].quorum().unwrap().wrong_state(), None);
    }
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_with_a_different_state_ends() {
    let mut three = ThreeCoordinators::start().await;
    let leader = three.leader().await;
    let next = [1, 2, 3].into_iter().find(|id| *id != leader).unwrap();
    three.spoil(next);
    three.lead(next).await;
    three.ends(next).await;
    // The remaining two are a majority and agree.
    three.compared_after(0).await;
    assert!(three.running.values().all(|coordinator| coordinator.quorum().unwrap().wrong_state().is_none()));
    three.stop().await;
}

/// Cost of a checksum: `cargo test --release -- --ignored --nocapture checksum_of_a_million`. Partitions without
/// replicas are shorter than others.
#[test]
#[ignore = "a measurement"]
fn checksum_of_a_million_partitions() {
    const TABLES: u32 = 100;
    let count: u32 = std::env::var("ARCHON_PARTITIONS").map_or(1_000_000, |count| count.parse().unwrap());
    let mut state = ClusterState::new();
    let cluster = ClusterId::new(Uuid::from_u128(1));
    let mut commands = vec![Command::Bootstrap { cluster, settings: Settings::default() }];
    commands.extend((0..TABLES).map(|number| Command::CreateTable {
        name: format!("t{number}"),
        partitioning: Partitioning::Hash { partitions: count / TABLES },
        replication: 1,
        holds: TableContent::Data,
    }));
    let who = Actor::Coordinator(1);
    let batch = CommandBatch { term: 1, proposer: 1, at: Millis::new(1), request: None, who, commands };
    for answer in apply(&mut state, 1, &batch) {
        assert!(answer.refusal().is_none(), "{answer:?}");
    }
    let begun = Instant::now();
    let image = state.image();
    let imaged = begun.elapsed();
    let begun = Instant::now();
    let bytes = codec::encode("state", &image).unwrap().len();
    let encoded = begun.elapsed();
    let begun = Instant::now();
    codec::checksum("state", &image).unwrap();
    let summed = begun.elapsed();
    println!(
        "{} partitions, {bytes} B: image {imaged:?}, encoding {encoded:?}, checksum {summed:?}",
        state.partitions.len()
    );
}
