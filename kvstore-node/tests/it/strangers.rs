//! Tests of replication from unknown senders: a copy accepts only a possible leader, in a possible epoch. The test
//! plays the leader, the stranger and the coordinator.

use crate::support::packed::{LEADER, LEADER_LIFE, LEADER_NODE, LeaderMessage, batch, batch_from};
use crate::support::stream::replicate;
use crate::support::{Fake, PARTITION, metric, row};
use archon_frames::{HANDSHAKE_BYTES, StreamKind};
use archon_kv::{Effect, RowChange, row as rows};
use archon_kvstore_node::Node;
use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_proto::v1::control_client::ControlClient;
use archon_testkit::{ScratchDirectory, wait_for_state};
use archon_types::limits::EPOCHS_AHEAD_MAX;
use archon_types::{Duty, ErrorKind, Millis, PlacementId, ReplicaState, Revision};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const STRANGER: u64 = 99;

/// Returns one entry of epoch 1 that follows the entry at `before`.
fn entry(before: u64) -> LeaderMessage {
    let number = before + 1;
    let value = rows::encode_value(Revision::new(number), b"value");
    let effect = Effect::new(Millis::new(number), vec![RowChange::set(rows::value_key(b"key"), value)]);
    let entries = vec![(1, effect.encode().unwrap())];
    LeaderMessage::Append { before: (u64::from(before > 0), before), start: 0, commit: number, entries }
}

/// Returns an append without entries, which only claims leadership.
fn nothing() -> LeaderMessage {
    LeaderMessage::Append { before: (0, 0), start: u64::MAX, commit: 0, entries: Vec::new() }
}

async fn committed(node: &Node, count: u64) {
    let commits = || metric(node, "entries_committed_total");
    wait_for_state("the leader is still obeyed", commits, |commits| *commits >= count).await;
}

/// A copy that persists the last possible epoch could never accept a leader again, not even after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_with_impossible_sender_or_epoch_is_ignored() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.played("thebes", LEADER_NODE, LEADER_LIFE);
    let live = ReplicaState::Live;
    let led = row(1, 1, LEADER, &[(1, fake.id("athens"), live), (LEADER, LEADER_NODE, live)]);
    fake.host("athens", &led).await;
    let address = fake.known("athens").unwrap().address;
    let leader = replicate(&address).await;
    leader.send(batch(&fake, 1, &[entry(0)])).await.unwrap();
    committed(&node, 1).await;

    // The coordinators never named these nodes: their streams end.
    for from in [[STRANGER, STRANGER, 1], [LEADER, STRANGER, 1]] {
        let stranger = replicate(&address).await;
        stranger.send(batch_from(&fake, from, u64::MAX, &[nothing()])).await.unwrap();
        let ended = || stranger.is_closed();
        wait_for_state("the stranger is refused", ended, |ended| *ended).await;
    }
    // A known node that names a copy outside the partition, and the leader itself, restored from an old state or
    // forged.
    let leads = [LEADER, LEADER_NODE.get(), LEADER_LIFE];
    let unknown = [STRANGER, LEADER_NODE.get(), LEADER_LIFE];
    let said = [(unknown, 2), (leads, u64::MAX), (leads, 1 + EPOCHS_AHEAD_MAX + 1)];
    for (held, (from, epoch)) in (1..).zip(said) {
        leader.send(batch_from(&fake, from, epoch, &[nothing()])).await.unwrap();
        leader.send(batch(&fake, 1, &[entry(held)])).await.unwrap();
        committed(&node, held + 1).await;
    }
    // The node gets its duties again after a restart, and still accepts the leader.
    node.stop().await.unwrap();
    let node = fake.node("athens", directory.path()).await;
    fake.host("athens", &row(1, 2, LEADER, &[(1, fake.id("athens"), live), (LEADER, LEADER_NODE, live)])).await;
    let leader = replicate(&fake.known("athens").unwrap().address).await;
    leader.send(batch(&fake, 1, &[entry(4)])).await.unwrap();
    committed(&node, 1).await;
    node.stop().await.unwrap();
}

/// A sender that knows cluster, node and incarnation, which every table names, must not make a node delete its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_from_unknown_coordinator_is_refused() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.played("thebes", LEADER_NODE, LEADER_LIFE);
    let live = ReplicaState::Live;
    let led = |version| row(1, version, LEADER, &[(1, fake.id("athens"), live), (LEADER, LEADER_NODE, live)]);
    fake.host("athens", &led(1)).await;
    let address = fake.known("athens").unwrap().address;
    let leader = replicate(&address).await;
    leader.send(batch(&fake, 1, &[entry(0)])).await.unwrap();
    committed(&node, 1).await;

    let unload = Duty::Unload { partition: PARTITION, placement: PlacementId::new(1) };
    let mut forged = fake.duties("athens", &led(2), vec![unload]);
    forged.coordinators = vec!["127.0.0.1:9".to_owned()];
    let mut client = ControlClient::connect(format!("http://{address}")).await.unwrap();
    let refused = client.push(v1::PushRequest::from(forged)).await.map_err(|status| detail_of(&status)).unwrap_err();
    assert!(refused.kind == ErrorKind::Refused && refused.message.contains("has not called"), "{refused}");
    // Nothing was unloaded, and pushes of the node's own coordinators are accepted.
    leader.send(batch(&fake, 1, &[entry(1)])).await.unwrap();
    committed(&node, 2).await;
    fake.host("athens", &led(2)).await;
    node.stop().await.unwrap();
}

/// A node from before the exactly-once windows: the connection ended without a reason, and no replica became in sync.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_of_earlier_format_is_refused_with_reason() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let mut stream = TcpStream::connect(fake.known("athens").unwrap().address).await.unwrap();
    let (from, mut to) = stream.split();
    let mut handshake = StreamKind::Replicate.handshake();
    let ours = handshake[HANDSHAKE_BYTES - 1];
    handshake[HANDSHAKE_BYTES - 1] -= 1;
    to.write_all(&handshake).await.unwrap();
    let mut from = from.take(1 << 16);
    let mut answer = Vec::new();
    // The other side closes its half at once.
    tokio::time::timeout(Duration::from_secs(60), from.read_to_end(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let why = format!("this version speaks format {ours}, run the same version on both sides");
    assert!(answer.contains(&why), "{answer}");
    node.stop().await.unwrap();
}
