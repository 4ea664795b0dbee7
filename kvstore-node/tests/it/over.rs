//! Tests of the notice between nodes that an incarnation is over (PROTOCOL rule 72). The test plays the peer and the
//! coordinator.

use crate::support::packed::{LEADER, LEADER_LIFE, LEADER_NODE, batch_from};
use crate::support::stream::open;
use crate::support::{Fake, metric, row};
use archon_frames::{FrameError, FrameReader, FrameWriter, PartialBudget, StreamKind, accept};
use archon_proto::v1;
use archon_testkit::{ScratchDirectory, wait_for_state};
use archon_types::{ErrorKind, FencingProof, Incarnation, NodeId, NodeStatus, OVER_SINCE, ReplicaState, Version};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

const LIVE: ReplicaState = ReplicaState::Live;
const SOON: Duration = Duration::from_secs(60);
/// Version of the row that declares the peer failed.
const FAILED: u64 = 1_002;

/// Pushes to athens that the peer's registered incarnation has failed.
async fn peer_is_failed(fake: &Fake) {
    let mut push = fake.duties("athens", &row(1, 2, LEADER, &[(LEADER, LEADER_NODE, LIVE)]), Vec::new());
    let peers = push.nodes.iter_mut().flat_map(|delta| &mut delta.nodes).filter(|node| node.id == LEADER_NODE);
    for peer in peers {
        (peer.status, peer.version) = (NodeStatus::Failed, Version::new(FAILED));
    }
    fake.send("athens", push).await.unwrap();
}

/// Opens a stream from this incarnation of the peer to athens.
async fn calls(fake: &Fake, life: u64) -> (FrameReader, FrameWriter) {
    let (reader, mut writer) = open(&fake.known("athens").unwrap().address, StreamKind::Replicate).await;
    writer.push(&batch_from(fake, [LEADER, LEADER_NODE.get(), life], 1, &[]));
    writer.flush().await.unwrap();
    (reader, writer)
}

async fn hears(reader: &mut FrameReader) -> Result<v1::ReplicationBatch, FrameError> {
    timeout(SOON, reader.next()).await.expect("it says something")
}

fn over(node: NodeId, incarnation: u64, version: u64) -> FencingProof {
    FencingProof { node, incarnation: Incarnation::new(incarnation), version: Version::new(version) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_peer_is_notified_and_next_incarnation_accepted() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    fake.state.lock().protocol = Some(OVER_SINCE);
    let node = fake.node("athens", directory.path()).await;
    fake.played("cyrene", LEADER_NODE, LEADER_LIFE);
    peer_is_failed(&fake).await;
    // The failed incarnation, and the one before it, which the registration ended.
    for (life, version) in [(LEADER_LIFE, FAILED), (LEADER_LIFE - 1, LEADER_LIFE)] {
        let (mut reader, _writer) = calls(&fake, life).await;
        assert_eq!(hears(&mut reader).await.unwrap().over, Some(over(LEADER_NODE, life, version).into()));
        let ended = hears(&mut reader).await;
        let Err(FrameError::Refused(detail)) = ended else { panic!("{ended:?}") };
        assert_eq!(detail.kind, ErrorKind::StaleIncarnation);
    }
    let (mut reader, _writer) = calls(&fake, LEADER_LIFE + 1).await;
    let heard = timeout(Duration::from_millis(300), reader.next::<v1::ReplicationBatch>()).await;
    assert!(heard.is_err(), "it goes on: {heard:?}");
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_notice_needs_cluster_protocol_version() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    fake.played("cyrene", LEADER_NODE, LEADER_LIFE);
    peer_is_failed(&fake).await;
    let (mut reader, _writer) = calls(&fake, LEADER_LIFE).await;
    let heard = timeout(Duration::from_millis(300), reader.next::<v1::ReplicationBatch>()).await;
    assert!(heard.is_err(), "it goes on: {heard:?}");
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_registers_again_after_failure_notice_from_peer() {
    let directory = ScratchDirectory::in_memory().unwrap();
    let fake = Fake::start().await;
    let node = fake.node("athens", directory.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fake.played_at("cyrene", LEADER_NODE, LEADER_LIFE, listener.local_addr().unwrap().to_string());
    let athens = fake.known("athens").unwrap();
    // Athens is to take over, and asks its follower for its log.
    fake.host("athens", &row(1, 1, 1, &[(1, athens.id, LIVE), (LEADER, LEADER_NODE, LIVE)])).await;
    let told = || metric(&node, "lives_told_over_total");
    // Athens ignores a notice about a former incarnation or another node.
    let life = athens.incarnation.get();
    for foreign in [over(athens.id, life - 1, 1_003), over(LEADER_NODE, life, 1_003)] {
        says(&listener, foreign).await;
        assert_eq!((told(), fake.known("athens").unwrap().incarnation), (0, athens.incarnation), "{foreign:?}");
    }
    says(&listener, over(athens.id, life, 1_003)).await;
    wait_for_state("it registers anew", || fake.known("athens").unwrap().incarnation, |now| *now > athens.incarnation)
        .await;
    assert_eq!(told(), 1);
    assert!(fake.state.lock().left.is_empty(), "it says no farewell: it had nothing to release");
    node.stop().await.unwrap();
}

/// Answers the next stream of athens with this notice, and waits until athens has read it and reconnects.
async fn says(listener: &TcpListener, over: FencingProof) {
    let (mut reader, mut writer) = loop {
        let (connection, _) = timeout(SOON, listener.accept()).await.expect("athens calls").unwrap();
        let accepted = accept(connection.into(), |_| PartialBudget::new(1 << 26)).await;
        if let Ok((StreamKind::Replicate, reader, writer)) = accepted {
            break (reader, writer);
        }
    };
    let first = timeout(SOON, reader.next::<v1::ReplicationBatch>()).await.expect("a first message").unwrap();
    assert!(first.sender.is_some(), "{first:?}");
    writer.push(&v1::ReplicationBatch { over: Some(over.into()), ..Default::default() });
    writer.refuse(over.refusal());
    writer.flush().await.unwrap();
    // Athens closes the stream once it has read the refusal, which comes after the notice.
    while timeout(SOON, reader.next::<v1::ReplicationBatch>()).await.expect("it hangs up").is_ok() {}
}
