//! Senders that reach a voter's port and speak Raft without being a voter, and voters that claim results of elections
//! that did not happen: no message ends the quorum, and none changes a vote or an entry.

use crate::common::{Quorum, ask, ask_of, channel, hashed, request_id};
use archon_documents::ShowQuorum;
use archon_proto::v1;
use archon_proto::v1::raft_client::RaftClient;
use archon_testkit::wait_for_async;
use archon_types::{ErrorDetail, Settings};
use bytes::Bytes;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tonic::{Code, Status};
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(60);
/// The last term: none can follow.
const LAST: u64 = u64::MAX;
const STRANGER: u64 = 99;

#[derive(Clone, Copy, Serialize)]
struct LeaderId {
    term: u64,
    voted_for: Option<u64>,
}

#[derive(Clone, Copy, Serialize)]
struct Vote {
    leader_id: LeaderId,
    committed: bool,
}

#[derive(Clone, Copy, Serialize)]
struct LogId {
    leader_id: u64,
    index: u64,
}

#[derive(Serialize)]
struct Append {
    vote: Vote,
    prev_log_id: Option<LogId>,
    entries: Vec<()>,
    leader_commit: Option<LogId>,
}

#[derive(Serialize)]
struct VoteRequest {
    vote: Vote,
    last_log_id: Option<LogId>,
    leadership_transfer: bool,
}

#[derive(Serialize)]
struct Transfer {
    from_leader: Vote,
    to_node_id: u64,
    last_log_id: Option<LogId>,
}

#[derive(Clone, Serialize)]
struct Voter {
    address: String,
    storage: Uuid,
}

#[derive(Serialize)]
struct Membership {
    configs: Vec<BTreeSet<u64>>,
    nodes: BTreeMap<u64, Voter>,
}

#[derive(Serialize)]
struct StoredMembership {
    log_id: Option<LogId>,
    membership: Membership,
}

#[derive(Serialize)]
struct SnapshotMeta {
    last_log_id: Option<LogId>,
    last_membership: StoredMembership,
    snapshot_id: String,
}

const fn vote(term: u64, of: u64, committed: bool) -> Vote {
    Vote { leader_id: LeaderId { term, voted_for: Some(of) }, committed }
}

/// An attacker with all public knowledge about a quorum, and with the secret ids of the data directories.
struct Impostor {
    id: u64,
    storage: Uuid,
    quorum: Uuid,
    peers: BTreeMap<u64, String>,
    storages: BTreeMap<u64, Uuid>,
}

impl Impostor {
    /// Creates one with this id, which shows the data directory of the voter of that number, if there is one.
    async fn of(quorum: &Quorum, id: u64) -> Self {
        let mut text = String::new();
        for (id, address) in &quorum.peers {
            text.push_str(&format!("{id}={address},"));
        }
        let fnv =
            |seed: u64| text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let key = Uuid::from_u64_pair(fnv(0xcbf2_9ce4_8422_2325), fnv(0x6c62_272e_07bb_0142));
        let mut impostor =
            Self { id, storage: Uuid::new_v4(), quorum: key, peers: quorum.peers.clone(), storages: BTreeMap::new() };
        for (of, dir) in &quorum.dirs {
            let identity = std::fs::read(dir.path().join("identity.json")).unwrap();
            let identity: serde_json::Value = serde_json::from_slice(&identity).unwrap();
            impostor.storages.insert(*of, identity["storage"].as_str().unwrap().parse().unwrap());
        }
        // A sender under a voter's number learns only that its directory is not the voter's.
        for (target, sender) in [(1, 2), (2, 1)] {
            let hello = v1::HelloRequest {
                cluster_id: Bytes::copy_from_slice(key.as_bytes()),
                sender,
                target,
                sender_storage: request_id(),
                subject: None,
                ..Default::default()
            };
            let told = impostor.client(target).hello(hello).await.unwrap().into_inner();
            assert_eq!((told.standing(), told.storage), (v1::Standing::OtherDirectory, Bytes::new()));
        }
        impostor.storage = impostor.storages.get(&id).copied().unwrap_or(impostor.storage);
        impostor
    }

    fn client(&self, target: u64) -> RaftClient<tonic::transport::Channel> {
        RaftClient::new(channel(&self.peers[&target]))
    }

    fn message(&self, target: u64, body: &impl Serialize) -> v1::RaftMessage {
        v1::RaftMessage {
            cluster_id: Bytes::copy_from_slice(self.quorum.as_bytes()),
            sender: self.id,
            target,
            protocol_min: 1,
            protocol_max: 2,
            format: 1,
            body: rmp_serde::to_vec_named(body).unwrap().into(),
            sender_storage: Bytes::copy_from_slice(self.storage.as_bytes()),
            lack: None,
            snapshot_waits: false,
            certificate: None,
            ..Default::default()
        }
    }

    async fn append(&self, target: u64, vote: Vote) -> Result<(), Status> {
        let body = Append { vote, prev_log_id: None, entries: Vec::new(), leader_commit: None };
        let requests = tokio_stream::iter([self.message(target, &body)]);
        let mut answers = self.client(target).append(requests).await?.into_inner();
        answers.message().await.map(|answer| assert!(answer.is_some(), "neither an answer nor an error"))
    }

    async fn vote(&self, target: u64, vote: Vote) -> Result<(), Status> {
        let body =
            VoteRequest { vote, last_log_id: Some(LogId { leader_id: LAST, index: LAST }), leadership_transfer: true };
        self.client(target).vote(self.message(target, &body)).await.map(|_| ())
    }

    async fn pre_vote(&self, target: u64, vote: Vote) -> Result<(), Status> {
        let body = VoteRequest { vote, last_log_id: None, leadership_transfer: false };
        self.client(target).pre_vote(self.message(target, &body)).await.map(|_| ())
    }

    async fn transfer(&self, target: u64, vote: Vote) -> Result<(), Status> {
        let body = Transfer { from_leader: vote, to_node_id: target, last_log_id: None };
        self.client(target).transfer(self.message(target, &body)).await.map(|_| ())
    }

    fn header(&self, target: u64, vote: Vote, last: Option<LogId>, bytes: u64) -> v1::SnapshotChunk {
        let voter = |(id, address): (&u64, &String)| {
            let storage = self.storages.get(id).copied().unwrap_or_default();
            (*id, Voter { address: address.clone(), storage })
        };
        let nodes: BTreeMap<u64, Voter> = self.peers.iter().map(voter).collect();
        let membership = Membership { configs: vec![nodes.keys().copied().collect()], nodes };
        let last_membership = StoredMembership { log_id: Some(LogId { leader_id: 0, index: 0 }), membership };
        let meta = SnapshotMeta { last_log_id: last, last_membership, snapshot_id: String::new() };
        let header = self.message(target, &(vote, meta, bytes));
        v1::SnapshotChunk { header: Some(header), ..v1::SnapshotChunk::default() }
    }

    async fn snapshot(&self, target: u64, vote: Vote, last: Option<LogId>, body: &[u8]) -> Result<(), Status> {
        let data = Bytes::copy_from_slice(body);
        let chunk = v1::SnapshotChunk { header: None, crc32c: crc32c::crc32c(&data), data };
        let chunks = tokio_stream::iter([self.header(target, vote, last, body.len() as u64), chunk]);
        self.client(target).snapshot(chunks).await.map(|_| ())
    }

    /// Sends every kind of message with this vote to all. None may be accepted.
    async fn say_all(&self, term: u64, of: u64) {
        let last = Some(LogId { leader_id: 0, index: 0 });
        for target in self.peers.keys().copied().filter(|target| *target != self.id) {
            let answers = [
                ("append", self.append(target, vote(term, of, true)).await),
                ("vote", self.vote(target, vote(term, of, false)).await),
                ("pre-vote", self.pre_vote(target, vote(term, of, false)).await),
                ("transfer", self.transfer(target, vote(term, of, true)).await),
                ("snapshot", self.snapshot(target, vote(term, of, true), last, b"").await),
            ];
            for (what, answer) in answers {
                let refused = answer.expect_err(&format!("coordinator {target} took a {what} of {} for {of}", self.id));
                let expected =
                    if self.peers.contains_key(&self.id) { Code::InvalidArgument } else { Code::PermissionDenied };
                assert_eq!(refused.code(), expected, "{what}: {refused}");
            }
        }
    }
}

/// Term and leader of each coordinator's view.
type Terms = BTreeMap<u64, (u64, Option<u64>)>;

async fn terms(quorum: &Quorum) -> Result<Terms, ErrorDetail> {
    let mut terms = BTreeMap::new();
    for (id, address) in &quorum.peers {
        let view = ask(address, &ShowQuorum {}).await?;
        terms.insert(*id, (view.term, view.leader_id));
    }
    Ok(terms)
}

/// Returns the terms once all agree on a leader.
async fn settled(quorum: &Quorum) -> Terms {
    wait_for_async("all to know one leader", SOON, || async {
        let terms = terms(quorum).await.map_err(|error| error.to_string())?;
        let agreed: BTreeSet<_> = terms.values().collect();
        let known = terms.values().all(|(_, leader)| leader.is_some());
        (agreed.len() == 1 && known).then(|| terms.clone()).ok_or_else(|| format!("{terms:?}"))
    })
    .await
}

/// Upper bound of the elections of one test.
const ELECTIONS_MAX: u64 = 1_000;

/// Checks that terms and leaders only come from elections among the voters: on a busy machine there may have been some.
async fn undisturbed(quorum: &Quorum, before: &Terms) {
    let after = terms(quorum).await.unwrap();
    for (id, (term, leader)) in &after {
        let elected = leader.is_none_or(|leader| quorum.peers.contains_key(&leader));
        assert!(elected && *term <= before[id].0 + ELECTIONS_MAX, "{before:?} became {after:?}");
    }
}

/// Commits something through the leader.
async fn commit(quorum: &Quorum, table: &str) {
    wait_for_async("a commit", SOON, || async {
        let leader = quorum.leader_address().await;
        let cluster = Some(quorum.cluster().await);
        match ask_of(&leader, &hashed(table, 3), cluster).await {
            Err(error) if !error.message.contains("exists") => Err(error.to_string()),
            _ => Ok(()),
        }
    })
    .await;
}

/// Checks that the quorum elects, commits, and restarts from its disks.
async fn goes_on(mut quorum: Quorum) {
    commit(&quorum, "after").await;
    let leader = quorum.leader().await;
    assert!(quorum.running.remove(&leader).unwrap().shutdown().await.is_none());
    commit(&quorum, "without-it").await;
    quorum.restart(leader).await;
    let ids: Vec<u64> = quorum.peers.keys().copied().collect();
    for id in &ids {
        assert!(quorum.running.remove(id).unwrap().stop().await.is_none(), "coordinator {id} failed");
    }
    for id in &ids {
        quorum.restart(*id).await;
    }
    commit(&quorum, "restarted").await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_claiming_last_term_does_not_end_quorum() {
    let quorum = Quorum::start(3, Settings::default()).await;
    let before = settled(&quorum).await;
    let stranger = Impostor::of(&quorum, STRANGER).await;
    let hello = v1::HelloRequest {
        cluster_id: Bytes::copy_from_slice(stranger.quorum.as_bytes()),
        sender: STRANGER,
        target: 1,
        sender_storage: request_id(),
        subject: None,
        ..Default::default()
    };
    assert_eq!(stranger.client(1).hello(hello).await.unwrap_err().code(), Code::PermissionDenied);
    for term in [LAST, before[&1].0 + 1, 0] {
        stranger.say_all(term, STRANGER).await;
        stranger.say_all(term, 1).await;
    }
    undisturbed(&quorum, &before).await;
    goes_on(quorum).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn voter_with_forged_votes_does_not_end_quorum() {
    let quorum = Quorum::start(3, Settings::default()).await;
    let before = settled(&quorum).await;
    let (term, leader) = (before[&1].0, before[&1].1.unwrap());
    let faulty = quorum.peers.keys().copied().find(|id| *id != leader).unwrap();
    let faulty = Impostor::of(&quorum, faulty).await;
    faulty.say_all(LAST, faulty.id).await;
    // Above the permitted jump, even after elections on a busy machine.
    faulty.say_all(term + (1 << 32) + ELECTIONS_MAX + 1, faulty.id).await;
    for other in [leader, STRANGER] {
        faulty.say_all(term + 1, other).await;
    }
    // A leader's vote was granted, a candidate's is not yet.
    let target = leader;
    for answer in [
        faulty.append(target, vote(term + 1, faulty.id, false)).await,
        faulty.vote(target, vote(term + 1, faulty.id, true)).await,
        faulty.pre_vote(target, vote(term + 1, faulty.id, true)).await,
        faulty.transfer(target, vote(term + 1, faulty.id, false)).await,
    ] {
        assert_eq!(answer.unwrap_err().code(), Code::InvalidArgument);
    }
    undisturbed(&quorum, &before).await;
    goes_on(quorum).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_snapshot_ends_no_coordinator() {
    let quorum = Quorum::start(3, Settings::default()).await;
    commit(&quorum, "before").await;
    let before = settled(&quorum).await;
    let (term, leader) = (before[&1].0, before[&1].1.unwrap());
    let mut others = quorum.peers.keys().copied().filter(|id| *id != leader);
    let (sender, target) = (others.next().unwrap(), others.next().unwrap());
    let voter = Impostor::of(&quorum, sender).await;
    let mine = vote(term + 1, sender, true);
    let at = |term: u64, index: u64| Some(LogId { leader_id: term, index });
    for (last, body, expected) in [
        (at(term + 2, 1_000_000), &b""[..], "beyond its sender's own"),
        (None, b"", "ends nowhere"),
        (at(term + 1, 1), b"", "is committed here"),
        (at(term + 1, 1_000_000), b"no state", "cannot decode"),
    ] {
        let refused = voter.snapshot(target, mine, last, body).await.unwrap_err();
        assert!(refused.message().contains(expected), "{refused} instead of {expected}");
    }
    undisturbed(&quorum, &before).await;
    goes_on(quorum).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_snapshot_at_a_time_is_received() {
    let quorum = Quorum::start(3, Settings::default()).await;
    let before = settled(&quorum).await;
    let (term, leader) = (before[&1].0, before[&1].1.unwrap());
    let mut others = quorum.peers.keys().copied().filter(|id| *id != leader);
    let (sender, target) = (others.next().unwrap(), others.next().unwrap());
    let voter = Impostor::of(&quorum, sender).await;
    let (mine, last) = (vote(term + 1, sender, true), Some(LogId { leader_id: term + 1, index: 1_000_000 }));
    // Two senders stop after their headers: one snapshot is being received and waits for its body, the other is
    // refused.
    let hold = || async {
        let (chunks, held) = tokio::sync::mpsc::channel(1);
        chunks.send(voter.header(target, mine, last, 100)).await.unwrap();
        let mut client = voter.client(target);
        let held = tokio_stream::wrappers::ReceiverStream::new(held);
        (chunks, tokio::spawn(async move { client.snapshot(held).await }))
    };
    let ((one, mut first), (other, mut second)) = (hold().await, hold().await);
    let (refused, received, chunks) = tokio::select! {
        refused = &mut first => (refused, second, other),
        refused = &mut second => (refused, first, one),
    };
    assert_eq!(refused.unwrap().unwrap_err().code(), Code::Unavailable, "another one is being received");
    drop(chunks);
    assert_eq!(received.await.unwrap().unwrap_err().code(), Code::DataLoss, "it was shorter than announced");
    let try_another = || async { voter.snapshot(target, mine, last, b"no state").await.unwrap_err() };
    wait_for_async("the place to be free", SOON, || async {
        let refused = try_another().await;
        refused.message().contains("cannot decode").then_some(()).ok_or_else(|| refused.to_string())
    })
    .await;
    quorum.stop_all().await;
}
