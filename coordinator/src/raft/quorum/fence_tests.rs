//! Tests of the fences against decisions of earlier terms and against voters that lost their disk.

use super::propose::Proposal;
use super::test_founders::{founder, listening};
use crate::Coordinator;
use crate::raft::identity::protocol_support::ProtocolSupport;
use crate::raft::network::judge::{self, PeerMessage as _, Standard, TERM_JUMP_MAX};
use crate::raft::network::wire::LocalVoter;
use crate::raft::types::{Entry, LogId, Membership, TypeConfig, Vote, Voter};
use archon_coordinator_core::{Acquaintances, Actor, ClusterState, Command, CommandBatch};
use archon_testkit::ScratchDirectory;
use archon_types::{ErrorKind, Millis, PROTOCOL_NEWEST, Partitioning, StorageId, TableContent};
use openraft::raft::{AppendEntriesRequest, VoteRequest, VoteResponse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

fn create(name: &str) -> Command {
    Command::CreateTable {
        name: name.to_owned(),
        partitioning: Partitioning::Hash { partitions: 3 },
        replication: 1,
        holds: TableContent::Data,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_of_another_term_is_void() {
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
    let term = quorum.leading_term().unwrap();
    let tables = || quorum.replicated().read(|state: &ClusterState| state.tables.len());
    let before = tables();

    // A proposal under another term never reaches the log.
    let who = Actor::Coordinator(1);
    let old = Proposal { term: term + 1, request: None, who: who.clone(), commands: vec![create("old")] };
    let refused = quorum.propose(old, Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NoQuorum, "{refused}");
    // If it is in the log nevertheless, applying voids it.
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
    // A proposal of this term is applied.
    let ours = Proposal { term, request: None, who, commands: vec![create("ours")] };
    quorum.propose(ours, Duration::from_secs(2)).await.unwrap();
    assert_eq!(tables(), before + 1);
    drop(quorum);
    coordinator.stop().await;
}

fn voter(id: u64, storage: u128) -> LocalVoter {
    let expected = Arc::new([1, 2, 3].into());
    LocalVoter {
        id,
        storage: Uuid::from_u128(storage),
        quorum: Uuid::from_u128(9),
        expected,
        spoken: ProtocolSupport::default(),
        timing: Default::default(),
        marks: crate::raft::KeptMarks::none(id, Uuid::from_u128(storage)),
        checksums: crate::raft::Checksums::new(id),
    }
}

fn vote_request(term: u64, of: u64) -> VoteRequest<TypeConfig> {
    VoteRequest::new(Vote::new(term, of), None)
}

#[test]
fn messages_of_the_wrong_quorum_target_or_disk_are_refused() {
    let (sender, receiver) = (voter(2, 22), voter(1, 11));
    let directory = |number| StorageId::new(Uuid::from_u128(number));
    let known = Acquaintances::new([(1, directory(11)), (2, directory(22))].into());
    let open = |sender: &LocalVoter, target| {
        let message = sender.message(target, "vote request", &vote_request(7, sender.id)).unwrap();
        receiver.open::<VoteRequest<TypeConfig>>("vote request", &message, 6, &known)
    };
    assert_eq!(open(&sender, 1).unwrap(), vote_request(7, 2));
    let refused = |sender: LocalVoter, target| open(&sender, target).unwrap_err().message().to_owned();
    assert!(refused(sender.clone(), 3).contains("is for 3"));
    assert!(refused(LocalVoter { quorum: Uuid::from_u128(8), ..sender.clone() }, 1).contains("another peer list"));
    assert!(refused(LocalVoter { storage: Uuid::from_u128(23), ..sender.clone() }, 1).contains("does not rejoin"));
    assert!(refused(LocalVoter { id: 1, ..sender.clone() }, 1).contains("heard from itself"));
    assert!(refused(voter(99, 99), 1).contains("not a member of the quorum"));
    // Before there are members, no data directory of coordinator 99 is known, so that check alone would not refuse it.
    let message = voter(99, 99).message(1, "vote request", &vote_request(7, 99)).unwrap();
    let founding =
        receiver.open::<VoteRequest<TypeConfig>>("vote request", &message, 6, &Acquaintances::default()).unwrap_err();
    assert!(founding.message().contains("not in the --peers"), "{founding}");
    let mut newer = sender.message(1, "vote request", &vote_request(7, 2)).unwrap();
    newer.format = PROTOCOL_NEWEST + 1;
    let error = receiver.open::<VoteRequest<TypeConfig>>("vote request", &newer, 6, &known).unwrap_err();
    assert!(error.message().contains("has protocol 3, and coordinator 1 supports 1 to 2"), "{error}");
}

#[test]
fn answers_of_wrong_voter_disk_or_term_are_refused() {
    let (sender, asker) = (voter(2, 22), voter(1, 11));
    let open = |term: u64, of: u64, from: u64, storage: u128| {
        let answer = VoteResponse::<TypeConfig>::new(Vote::new(term, of), None, false);
        let answer = sender.message(1, "vote answer", &answer).unwrap();
        let peer = (from, Uuid::from_u128(storage));
        asker.open_answer::<VoteResponse<TypeConfig>>("vote answer", &answer, peer, 5).map_err(|e| e.to_string())
    };
    assert_eq!(open(7, 3, 2, 22).unwrap().vote, Vote::new(7, 3), "who answers may have voted for another one");
    assert_eq!(open(0, 0, 2, 22).unwrap().vote, Vote::new(0, 0), "or for nobody yet");
    assert!(open(7, 3, 2, 23).unwrap_err().contains("another data directory"));
    assert!(open(7, 3, 3, 22).unwrap_err().contains("another data directory"));
    assert_eq!(open(7, 99, 2, 22).unwrap().vote, Vote::new(7, 99), "or for one that joined since");
    assert!(open(7, 0, 2, 22).unwrap_err().contains("without a candidate"));
    assert!(open(5 + TERM_JUMP_MAX, 3, 2, 22).is_ok());
    assert!(open(6 + TERM_JUMP_MAX, 3, 2, 22).unwrap_err().contains("no election leads there"));
}

#[test]
fn newcomer_accepts_leader_of_recovered_quorum() {
    let newcomer = |own, term| Standard { sender: 2, term: own }.term(term);
    assert_eq!(newcomer(0, archon_types::first_number(3) + 7), Ok(()));
    assert!(newcomer(1, archon_types::first_number(3) + 7).is_err(), "one that has voted knows its generation");
    assert!(newcomer(0, u64::MAX).is_err(), "no generation has that term");
}

fn position(term: u64, index: u64) -> LogId {
    LogId { leader_id: term.into(), index }
}

fn append(before: Option<LogId>, entries: &[LogId]) -> AppendEntriesRequest<TypeConfig> {
    let blank = |at: &LogId| Entry { log_id: *at, payload: openraft::EntryPayload::Blank };
    let entries = entries.iter().map(blank).collect();
    AppendEntriesRequest { vote: Vote::new_committed(5, 2), prev_log_id: before, entries, leader_commit: None }
}

#[test]
fn entries_with_gaps_are_refused() {
    let judge = |message: AppendEntriesRequest<TypeConfig>| {
        message.judge(Standard { sender: 2, term: 5 }).map_err(|why| why.to_lowercase())
    };
    let before = Some(position(3, 7));
    judge(append(None, &[])).unwrap();
    judge(append(before, &[position(3, 8), position(5, 9)])).unwrap();
    judge(append(None, &[position(0, 0), position(1, 1)])).unwrap();
    // A gap would be stored, and the next start would refuse the log.
    assert!(judge(append(before, &[position(3, 9)])).unwrap_err().contains("does not follow"));
    assert!(judge(append(before, &[position(3, 8), position(3, 10)])).unwrap_err().contains("does not follow"));
    assert!(judge(append(None, &[position(3, 1)])).unwrap_err().contains("does not follow"));
    let last = Some(position(3, u64::MAX));
    assert!(judge(append(last, &[position(3, 0)])).unwrap_err().contains("does not follow"));
    assert!(judge(append(before, &[position(2, 8)])).unwrap_err().contains("older term"));
    assert!(judge(append(before, &[position(6, 8)])).unwrap_err().contains("beyond"));
    assert!(judge(append(Some(position(6, 7)), &[])).unwrap_err().contains("beyond"));
    let commit = AppendEntriesRequest { leader_commit: Some(position(6, 7)), ..append(before, &[]) };
    assert!(judge(commit).unwrap_err().contains("beyond"));
}

#[test]
fn invalid_member_sets_are_refused() {
    let judge = |configs: Vec<BTreeSet<u64>>, nodes: &[(u64, &str)]| {
        let voter = |address: &str| Voter { address: address.to_owned(), storage: Uuid::nil() };
        let nodes: BTreeMap<u64, Voter> = nodes.iter().map(|(id, address)| (*id, voter(address))).collect();
        // As it arrives over the wire, where no type guarantees that it is valid.
        let members = serde_json::json!({ "configs": configs, "nodes": nodes });
        let members: Membership = serde_json::from_value(members).unwrap();
        let entries = vec![Entry { log_id: position(5, 8), payload: openraft::EntryPayload::Membership(members) }];
        let message = AppendEntriesRequest { entries, ..append(Some(position(3, 7)), &[]) };
        message.judge(Standard { sender: 2, term: 5 })
    };
    let (one, two) = ((1, "a:1"), (2, "b:1"));
    judge(vec![[1, 2].into()], &[one, two]).unwrap();
    judge(vec![[1].into(), [2].into()], &[one, two, (3, "c:1")]).unwrap();
    let refused = |configs, nodes: &[(u64, &str)]| judge(configs, nodes).unwrap_err();
    assert!(refused(vec![], &[one]).contains("none votes"));
    assert!(refused(vec![[].into()], &[one]).contains("none votes"));
    assert!(refused(vec![[1].into(), [2].into(), [1, 2].into()], &[one, two]).contains("none votes"));
    assert!(refused(vec![[1, 2].into()], &[one]).contains("a voter is none"));
    assert!(refused(vec![[1].into()], &[one, (2, "nowhere")]).contains("no address"));
    assert!(refused(vec![[0].into()], &[(0, "a:1")]).contains("no number"));
    let many: Vec<(u64, &str)> = (1..=11).map(|id| (id, "a:1")).collect();
    assert!(refused(vec![[1].into()], &many).contains("more than a quorum"));
}

#[test]
fn snapshot_contradicting_committed_entry_is_detected() {
    let committed = Some(position(3, 10));
    let continues = |last: LogId| judge::continues(Some(&last), committed.as_ref());
    assert!(continues(position(3, 11)).is_ok() && continues(position(4, 11)).is_ok());
    assert!(continues(position(3, 10)).is_ok() && continues(position(2, 4)).is_ok(), "an older one installs nothing");
    assert!(continues(position(4, 10)).is_err() && continues(position(4, 3)).is_err());
}
