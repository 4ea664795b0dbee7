//! What a copy does with the word of its leader. The test plays the leader as well as the coordinator.

#![allow(clippy::unwrap_used)]

mod support;

use archon_kv::{Effect, RowChange, row as rows};
use archon_kvstore_node::Node;
use archon_proto::v1;
use archon_types::{Fact, Millis, Partition, PlacementId, ReplicaState, Report, Revision, Seq};
use std::path::Path;
use support::packed::{LEADER, LEADER_LIFE, LEADER_NODE, Said, batch};
use support::stream::replicate;
use support::{Fake, metric, row, wait_for};
use tokio::sync::mpsc;

const LIVE: ReplicaState = ReplicaState::Live;
const LOAD: ReplicaState = ReplicaState::Load;
const ENTRIES: u64 = 5;

/// The row in which the leader's copy counts and that of athens is in this state.
fn led(fake: &Fake, epoch: u64, version: u64, state: ReplicaState) -> Partition {
    row(epoch, version, LEADER, &[(1, fake.id("athens"), state), (LEADER, LEADER_NODE, LIVE)])
}

/// The leader's stream to athens.
struct Leader {
    fake: Fake,
    stream: mpsc::Sender<v1::ReplicationBatch>,
}

impl Leader {
    /// To the present life of athens.
    async fn connect(fake: &Fake) -> Self {
        let known = fake.known("athens").unwrap();
        Self { fake: fake.clone(), stream: replicate(&known.address).await }
    }

    async fn send(&self, epoch: u64, said: &[Said]) {
        self.stream.send(batch(&self.fake, epoch, said)).await.unwrap();
    }
}

/// Entries from the one after `before` to `last`, of epoch 1, each of which sets a key, all of them committed.
fn entries(before: u64, last: u64) -> Said {
    let entry = |number: u64| {
        let key = rows::value_key(format!("key-{number}").as_bytes());
        let value = rows::encode_value(Revision::new(number), b"value");
        let effect = Effect { at: Millis::new(number), changes: vec![RowChange::set(key, value)] };
        (1, effect.encode())
    };
    let entries = (before + 1..=last).map(entry).collect();
    Said::Append { before: (u64::from(before > 0), before), start: 0, commit: last, entries }
}

async fn committed(node: &Node, count: u64) {
    let commits = || metric(node, "entries_committed_total");
    wait_for("the entries are committed", commits, |commits| *commits >= count).await;
}

/// Athens follows, and holds the entries.
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

/// As long as the coordinators take it for a copy that holds everything up to when it ceased to count, an operator may be
/// told to let it lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_emptied_is_reported_in_this_life_and_in_the_next_ones() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start().await;
    let (node, leader) = follower(&fake, directory.path()).await;
    let behind = || Said::Behind { base: (1, 100) };
    // It counts: whatever is said, it holds everything and throws nothing away.
    leader.send(1, &[behind(), entries(ENTRIES, ENTRIES + 1)]).await;
    committed(&node, ENTRIES + 1).await;
    fake.host("athens", &led(&fake, 1, 2, LOAD)).await;
    assert_eq!(emptied(&fake), []);
    leader.send(1, &[behind()]).await;
    let told = wait_for("it is told", || emptied(&fake), |told| !told.is_empty()).await;
    assert_eq!((told[0].placement, told[0].version), (PlacementId::new(1), led(&fake, 1, 2, LOAD).version));
    // The row has changed: the copy may have counted until then, and what was said before would not be believed.
    fake.host("athens", &led(&fake, 1, 3, LOAD)).await;
    wait_for("it is told for the changed row", || emptied(&fake), |told| told.len() == 2).await;
    // A push may repeat the duty, and nothing has happened since.
    fake.host("athens", &led(&fake, 1, 3, LOAD)).await;
    fake.host("athens", &led(&fake, 1, 3, LOAD)).await;
    assert_eq!(emptied(&fake).len(), 2);

    // The node registers anew, and what it had to say before is forgotten: perhaps nobody has heard it.
    let before = fake.known("athens").unwrap().incarnation;
    fake.state.lock().stale = true;
    let anew = || fake.known("athens").unwrap().incarnation > before;
    wait_for("the node registers anew", anew, |anew| *anew).await;
    fake.host("athens", &led(&fake, 1, 5, LOAD)).await;
    wait_for("it is told by the next life", || emptied(&fake), |told| told.len() == 3).await;

    // And that the copy is empty stands on the disk as well.
    node.stop().await.unwrap();
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &led(&fake, 1, 6, LOAD)).await;
    wait_for("it is told after a restart", || emptied(&fake), |told| told.len() == 4).await;
    node.stop().await.unwrap();
}

/// A leader that lacks what was committed has lost data, or is another one's past: nothing is thrown away for it, and both
/// copies are named to the coordinators, who keep it among the events (PROTOCOL rule 10).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_lacks_what_was_committed_is_refused_and_reported_in_this_life_and_in_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start().await;
    let (node, leader) = follower(&fake, directory.path()).await;
    let disputes = || {
        let state = fake.state.lock();
        let facts = state.reports.iter().map(|(_, report)| report.fact.clone());
        facts.filter(|fact| matches!(fact, Fact::LostData { .. })).collect::<Vec<_>>()
    };
    // Its log ended at 2 when its epoch began.
    let short = || Said::Append { before: (1, 2), start: 2, commit: 2, entries: vec![] };
    fake.host("athens", &led(&fake, 2, 2, LIVE)).await;
    leader.send(2, &[short()]).await;
    let told = wait_for("it is told", disputes, |told| !told.is_empty()).await;
    let (commit, agreed) = (Seq::new(ENTRIES), Seq::new(2));
    assert_eq!(told, [Fact::LostData { leader: PlacementId::new(LEADER), commit, agreed }]);
    assert_eq!(metric(&node, "alarms_total"), 1);

    let before = fake.known("athens").unwrap().incarnation;
    fake.state.lock().stale = true;
    let anew = || fake.known("athens").unwrap().incarnation > before;
    wait_for("the node registers anew", anew, |anew| *anew).await;
    fake.host("athens", &led(&fake, 2, 3, LIVE)).await;
    // The stream that named the former life is over.
    let leader = Leader::connect(&fake).await;
    leader.send(2, &[short()]).await;
    wait_for("it is told by the next life", disputes, |told| told.len() == 2).await;

    // One that has everything is followed: nothing was cut.
    fake.host("athens", &led(&fake, 3, 4, LIVE)).await;
    let entries = vec![(3, Effect { at: Millis::new(9), changes: vec![] }.encode())];
    leader.send(3, &[Said::Append { before: (1, ENTRIES), start: ENTRIES, commit: ENTRIES + 1, entries }]).await;
    committed(&node, ENTRIES + 1).await;
    node.stop().await.unwrap();
}
