//! Tests of a follower. The test plays the leader and the coordinator.

use crate::support::packed::{LEADER, LEADER_LIFE, LEADER_NODE, LeaderMessage, batch};
use crate::support::stream::replicate;
use crate::support::{Fake, metric, row};
use archon_kv::{Effect, RowChange, row as rows};
use archon_kvstore_node::Node;
use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_testkit::{ScratchDirectory, wait_for_state};
use archon_types::{ErrorDetail, ErrorKind, Fact, Millis, Partition, PlacementId, ReplicaState, Report, Revision, Seq};
use bytes::Bytes;
use std::path::Path;
use tokio::sync::mpsc;

const LIVE: ReplicaState = ReplicaState::Live;
const LOAD: ReplicaState = ReplicaState::Load;
const ENTRIES: u64 = 5;

/// Returns the row in which the leader's copy counts and the copy of athens has this state.
fn led(fake: &Fake, epoch: u64, version: u64, state: ReplicaState) -> Partition {
    row(epoch, version, LEADER, &[(1, fake.id("athens"), state), (LEADER, LEADER_NODE, LIVE)])
}

/// Replication stream from the leader to athens.
struct Leader {
    fake: Fake,
    stream: mpsc::Sender<v1::ReplicationBatch>,
}

/// Returns the value of a key from a stale read at athens, and the position of the read.
async fn stale(fake: &Fake, key: &str) -> Result<(Option<Bytes>, u64), ErrorDetail> {
    let request =
        v1::GetStaleRequest { cluster: Some(fake.cluster.into()), table: String::new(), key: key.to_owned().into() };
    let answer = fake.kv("athens").await.client.get_stale(request).await.map_err(|status| detail_of(&status))?;
    let v1::GetStaleResponse { value, as_of_revision } = answer.into_inner();
    let value = value.unwrap();
    Ok((value.found.then_some(value.value), as_of_revision))
}

/// A stale read returns committed data only, under any leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_read_returns_only_committed_data() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let (node, leader) = follower(&fake, directory.path()).await;
    let key = |number: u64| format!("key-{number}");
    let value = Some(Bytes::from_static(b"value"));
    assert_eq!(stale(&fake, &key(ENTRIES)).await, Ok((value.clone(), ENTRIES)));
    assert_eq!(stale(&fake, "absent").await, Ok((None, ENTRIES)));
    // The leader has one entry more, and sends its commit position only later.
    let LeaderMessage::Append { before, start, entries: more, .. } = entries(ENTRIES, ENTRIES + 1) else {
        unreachable!()
    };
    let logged = || metric(&node, "archon_wal_batches_total");
    let batches = logged();
    leader.send(1, &[LeaderMessage::Append { before, start, commit: ENTRIES, entries: more }]).await;
    wait_for_state("the entry is in the log", logged, |now| *now > batches).await;
    assert_eq!(stale(&fake, &key(ENTRIES + 1)).await, Ok((None, ENTRIES)), "it is not committed");
    leader
        .send(1, &[LeaderMessage::Append { before: (1, ENTRIES + 1), start: 0, commit: ENTRIES + 1, entries: vec![] }])
        .await;
    committed(&node, ENTRIES + 1).await;
    assert_eq!(stale(&fake, &key(ENTRIES + 1)).await, Ok((value, ENTRIES + 1)));
    let get = fake.kv("athens").await.get(&key(1)).await.unwrap_err();
    assert_ne!(get.kind, ErrorKind::WrongNode, "any other read goes to the leader: {get}");
    assert_eq!(stale(&fake, "").await.unwrap_err().kind, ErrorKind::InvalidArgument);

    // After a restart the copy knows its entries but not its commit position.
    node.stop().await.unwrap();
    let node = fake.node("athens", directory.path()).await;
    assert_eq!(stale(&fake, &key(1)).await.unwrap_err().kind, ErrorKind::Unavailable, "it knows no table yet");
    fake.host("athens", &led(&fake, 1, 2, LIVE)).await;
    let refused = stale(&fake, &key(1)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    assert!(refused.message.contains("does not know yet which of its rows are committed"), "{refused}");
    fake.host("athens", &led(&fake, 1, 3, LOAD)).await;
    let refused = stale(&fake, &key(1)).await.unwrap_err();
    assert!(refused.message.contains("is catching up"), "{refused}");
    fake.tell("athens", &row(1, 4, LEADER, &[(LEADER, LEADER_NODE, LIVE)])).await;
    assert_eq!(stale(&fake, &key(1)).await.unwrap_err().kind, ErrorKind::WrongNode);
    node.stop().await.unwrap();
}

impl Leader {
    /// Connects to the present incarnation of athens.
    async fn connect(fake: &Fake) -> Self {
        let known = fake.known("athens").unwrap();
        Self { fake: fake.clone(), stream: replicate(&known.address).await }
    }

    async fn send(&self, epoch: u64, said: &[LeaderMessage]) {
        self.stream.send(batch(&self.fake, epoch, said)).await.unwrap();
    }
}

/// Returns the committed entries of epoch 1 from the one after `before` to `last`, each of which sets a key.
fn entries(before: u64, last: u64) -> LeaderMessage {
    let entry = |number: u64| {
        let key = rows::value_key(format!("key-{number}").as_bytes());
        let value = rows::encode_value(Revision::new(number), b"value");
        let effect = Effect::new(Millis::new(number), vec![RowChange::set(key, value)]);
        (1, effect.encode().unwrap())
    };
    let entries = (before + 1..=last).map(entry).collect();
    LeaderMessage::Append { before: (u64::from(before > 0), before), start: 0, commit: last, entries }
}

async fn committed(node: &Node, count: u64) {
    let commits = || metric(node, "entries_committed_total");
    wait_for_state("the entries are committed", commits, |commits| *commits >= count).await;
}

/// Starts athens as a follower that holds the entries.
async fn follower(fake: &Fake, directory: &Path) -> (Node, Leader) {
    let node = fake.node("athens", directory).await;
    fake.played("thebes", LEADER_NODE, LEADER_LIFE);
    fake.host("athens", &led(fake, 1, 1, LIVE)).await;
    let leader = Leader::connect(fake).await;
    leader.send(1, &[entries(0, ENTRIES)]).await;
    committed(&node, ENTRIES).await;
    (node, leader)
}

fn emptied(fake: &Fake) -> Vec<Report> {
    let state = fake.state.lock();
    state.reports.iter().map(|(_, report)| report).filter(|report| report.fact == Fact::Emptied).cloned().collect()
}

/// While the coordinators count it as a copy that holds everything up to the end of its last count, they may advise an
/// operator to let it lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emptied_copy_is_reported_by_every_incarnation() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let (node, leader) = follower(&fake, directory.path()).await;
    let behind = || LeaderMessage::Behind { base: (1, 100) };
    // The copy counts: it holds everything and discards nothing, even if the leader sends `Behind`.
    leader.send(1, &[behind(), entries(ENTRIES, ENTRIES + 1)]).await;
    committed(&node, ENTRIES + 1).await;
    fake.host("athens", &led(&fake, 1, 2, LOAD)).await;
    assert_eq!(emptied(&fake), []);
    leader.send(1, &[behind()]).await;
    let told = wait_for_state("it is told", || emptied(&fake), |told| !told.is_empty()).await;
    assert_eq!((told[0].placement, told[0].version), (PlacementId::new(1), led(&fake, 1, 2, LOAD).version));
    // The row has changed: the copy may have counted until then, so the coordinators would ignore the earlier report.
    fake.host("athens", &led(&fake, 1, 3, LOAD)).await;
    wait_for_state("it is told for the changed row", || emptied(&fake), |told| told.len() == 2).await;
    // A push may repeat the duty; the copy has not changed since.
    fake.host("athens", &led(&fake, 1, 3, LOAD)).await;
    fake.host("athens", &led(&fake, 1, 3, LOAD)).await;
    assert_eq!(emptied(&fake).len(), 2);

    // The node registers again and clears its unsent reports, which may not have arrived.
    let before = fake.known("athens").unwrap().incarnation;
    fake.state.lock().stale = true;
    let anew = || fake.known("athens").unwrap().incarnation > before;
    wait_for_state("the node registers anew", anew, |anew| *anew).await;
    fake.host("athens", &led(&fake, 1, 5, LOAD)).await;
    wait_for_state("it is told by the next life", || emptied(&fake), |told| told.len() == 3).await;

    // The disk also records that the copy is empty.
    node.stop().await.unwrap();
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &led(&fake, 1, 6, LOAD)).await;
    wait_for_state("it is told after a restart", || emptied(&fake), |told| told.len() == 4).await;
    node.stop().await.unwrap();
}

/// A leader that lacks committed entries has lost data or was restored from an earlier state: the follower discards
/// nothing, and reports both copies to the coordinators, who record it as an event (PROTOCOL rule 10).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_without_committed_entries_is_refused_and_reported() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let (node, leader) = follower(&fake, directory.path()).await;
    let disputes = || {
        let state = fake.state.lock();
        let facts = state.reports.iter().map(|(_, report)| report.fact.clone());
        facts.filter(|fact| matches!(fact, Fact::LostData { .. })).collect::<Vec<_>>()
    };
    // The leader's log ended at 2 when its epoch began.
    let short = || LeaderMessage::Append { before: (1, 2), start: 2, commit: 2, entries: vec![] };
    fake.host("athens", &led(&fake, 2, 2, LIVE)).await;
    leader.send(2, &[short()]).await;
    let told = wait_for_state("it is told", disputes, |told| !told.is_empty()).await;
    let (commit, agreed) = (Seq::new(ENTRIES), Seq::new(2));
    assert_eq!(told, [Fact::LostData { leader: PlacementId::new(LEADER), commit, agreed }]);
    assert_eq!(metric(&node, "alarms_total"), 1);

    let before = fake.known("athens").unwrap().incarnation;
    fake.state.lock().stale = true;
    let anew = || fake.known("athens").unwrap().incarnation > before;
    wait_for_state("the node registers anew", anew, |anew| *anew).await;
    fake.host("athens", &led(&fake, 2, 3, LIVE)).await;
    // The stream that named the former incarnation has ended.
    let leader = Leader::connect(&fake).await;
    leader.send(2, &[short()]).await;
    wait_for_state("it is told by the next life", disputes, |told| told.len() == 2).await;

    // A leader that has all entries is followed; the log was not truncated.
    fake.host("athens", &led(&fake, 3, 4, LIVE)).await;
    let entries = vec![(3, Effect::new(Millis::new(9), vec![]).encode().unwrap())];
    leader
        .send(3, &[LeaderMessage::Append { before: (1, ENTRIES), start: ENTRIES, commit: ENTRIES + 1, entries }])
        .await;
    committed(&node, ENTRIES + 1).await;
    node.stop().await.unwrap();
}
