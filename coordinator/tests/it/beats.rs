//! Streams of heartbeats: owners, answers and ends.

use super::common::{FakeNode, Quorum, beat_stream, beats};
use super::{SOON, settings};
use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, connect};
use archon_proto::convert::members::beats::{BEATS_MAX, BeatAnswers, HeartbeatAnswers};
use archon_proto::v1;
use archon_security::{ExpectedPeer, Transport};
use archon_types::{ErrorDetail, ErrorKind};
use std::time::Duration;

/// Returns a node's heartbeat with this number.
fn beat(node: &FakeNode, number: u64) -> v1::Beat {
    v1::Beat {
        node: node.id,
        incarnation: node.incarnation,
        number,
        push_key: node.boot.clone(),
        ..v1::Beat::default()
    }
}

fn frame(node: &FakeNode, batch: u64, beats: Vec<v1::Beat>) -> v1::Beats {
    v1::Beats { cluster: node.cluster.clone(), batch, beats, relay: None }
}

async fn send(writer: &mut FrameWriter, frame: &v1::Beats) {
    writer.push(frame);
    writer.flush().await.unwrap();
}

async fn answers(reader: &mut FrameReader) -> BeatAnswers {
    let answers = tokio::time::timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an answer");
    BeatAnswers::try_from(answers.expect("the stream goes on")).unwrap()
}

/// Returns the reason why the stream ended.
async fn ended(reader: &mut FrameReader) -> ErrorDetail {
    let end = tokio::time::timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an end");
    let FrameError::Refused(detail) = end.unwrap_err() else { panic!("no word") };
    detail
}

fn numbers(judged: &HeartbeatAnswers) -> Vec<(u64, u64)> {
    judged.answers.iter().map(|answer| (answer.node.get(), answer.number)).collect()
}

/// Starts a quorum of so many coordinators with two nodes. A lone coordinator confirms each heartbeat at once, also on a
/// busy machine.
async fn two_nodes(coordinators: u64) -> (Quorum, String, FakeNode, FakeNode) {
    let quorum = Quorum::start(coordinators, settings(2, 4)).await;
    let leader = quorum.leader_address().await;
    let (mut athens, mut byzantium) = (FakeNode::new("athens").await, FakeNode::new("byzantium").await);
    athens.register(&leader).await.unwrap();
    byzantium.register(&leader).await.unwrap();
    (quorum, leader, athens, byzantium)
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_of_a_frame_are_judged_one_by_one() {
    let (quorum, leader, athens, byzantium) = two_nodes(1).await;
    let over = v1::Beat { incarnation: 1, ..beat(&byzantium, 7) };
    let sent = vec![beat(&athens, 1), over, beat(&byzantium, 1)];
    let judged = beats(&leader, frame(&athens, 1, sent)).await.unwrap().outcome.unwrap();
    assert_eq!(numbers(&judged), [(athens.id, 1), (byzantium.id, 7), (byzantium.id, 1)]);
    let outcomes: Vec<Option<ErrorKind>> =
        judged.answers.into_iter().map(|answer| answer.outcome.err().map(|detail| detail.kind)).collect();
    assert_eq!(outcomes, [None, Some(ErrorKind::StaleIncarnation), None]);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_and_late_heartbeats_are_not_answered() {
    let (quorum, leader, athens, _byzantium) = two_nodes(1).await;
    let (mut reader, mut writer) = beat_stream(&leader).await;
    send(&mut writer, &frame(&athens, 1, vec![beat(&athens, 5), beat(&athens, 5), beat(&athens, 4)])).await;
    assert_eq!(numbers(&answers(&mut reader).await.outcome.unwrap()), [(athens.id, 5)]);
    for batch in 2..=5 {
        writer.push(&frame(&athens, batch, vec![beat(&athens, batch + 4)]));
    }
    writer.flush().await.unwrap();
    let mut seen = Vec::new();
    for _ in 2..=5 {
        let BeatAnswers { batch, outcome, .. } = answers(&mut reader).await;
        seen.push((batch, numbers(&outcome.unwrap())));
    }
    assert_eq!(seen, (2..=5).map(|batch| (batch, vec![(athens.id, batch + 4)])).collect::<Vec<_>>());
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_frame_ends_only_its_stream_with_an_error() {
    let (quorum, leader, athens, byzantium) = two_nodes(1).await;
    let (mut kept, mut keeps) = beat_stream(&leader).await;
    send(&mut keeps, &frame(&byzantium, 1, vec![beat(&byzantium, 1)])).await;
    answers(&mut kept).await.outcome.unwrap();
    let many = vec![v1::Beat { push_key: athens.boot.clone(), ..v1::Beat::default() }; BEATS_MAX + 1];
    let cases = [
        (frame(&athens, 1, vec![]), "Beats.beats"),
        (frame(&athens, 1, vec![v1::Beat { number: 0, ..beat(&athens, 1) }]), "Beat.number"),
        (frame(&athens, 1, vec![v1::Beat { push_key: bytes::Bytes::new(), ..beat(&athens, 1) }]), "Beat.push_key"),
        (v1::Beats { cluster: None, ..frame(&athens, 1, vec![beat(&athens, 1)]) }, "cluster"),
    ];
    for (bad, named) in cases {
        let (mut reader, mut writer) = beat_stream(&leader).await;
        writer.push(&bad);
        let _ = writer.flush().await;
        let why = ended(&mut reader).await;
        assert!(why.kind == ErrorKind::InvalidArgument && why.message.contains(named), "{named}: {why}");
    }
    // A sender without an identified member may not send this much; the frame is not read to its end, so the error may
    // be lost.
    let (mut reader, mut writer) = beat_stream(&leader).await;
    writer.push(&frame(&athens, 1, many));
    let _ = writer.flush().await;
    assert!(tokio::time::timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an end").is_err());
    let exchange = connect(
        &Transport::default(),
        &leader,
        &ExpectedPeer::Coordinators,
        StreamKind::Exchange,
        1_024,
        Duration::from_secs(5),
    )
    .await
    .unwrap();
    let (mut reader, mut writer) = exchange;
    writer.flush().await.unwrap();
    assert_eq!(ended(&mut reader).await.kind, ErrorKind::InvalidArgument);
    send(&mut keeps, &frame(&byzantium, 2, vec![beat(&byzantium, 2)])).await;
    answers(&mut kept).await.outcome.unwrap();
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn member_has_one_stream_that_strangers_cannot_take() {
    let (quorum, leader, athens, byzantium) = two_nodes(1).await;
    let (mut first, mut of_first) = beat_stream(&leader).await;
    send(&mut of_first, &frame(&athens, 1, vec![beat(&athens, 1)])).await;
    answers(&mut first).await.outcome.unwrap();
    // A fenced incarnation and another cluster take no stream over.
    let former = v1::Beat { incarnation: 1, ..beat(&athens, 9) };
    let refused = beats(&leader, frame(&athens, 1, vec![former])).await.unwrap().outcome.unwrap();
    assert_eq!(refused.answers[0].outcome.as_ref().unwrap_err().kind, ErrorKind::StaleIncarnation);
    let cluster = Some(v1::ClusterRef { cluster_id: vec![9; 16].into() });
    let elsewhere = v1::Beats { cluster, ..frame(&athens, 1, vec![beat(&athens, 9)]) };
    assert_eq!(beats(&leader, elsewhere).await.unwrap().outcome.unwrap_err().kind, ErrorKind::WrongCluster);
    send(&mut of_first, &frame(&athens, 2, vec![beat(&athens, 2)])).await;
    answers(&mut first).await.outcome.unwrap();
    // A member that opens a new stream loses the previous one.
    let (mut second, mut of_second) = beat_stream(&leader).await;
    send(&mut of_second, &frame(&athens, 1, vec![beat(&athens, 3)])).await;
    answers(&mut second).await.outcome.unwrap();
    assert!(ended(&mut first).await.message.contains("another stream"));
    let judged = beats(&leader, frame(&byzantium, 1, vec![beat(&byzantium, 1)])).await.unwrap().outcome.unwrap();
    assert_eq!(judged.answers.len(), 1, "others have their own");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_names_leader_and_stopping_one_says_so() {
    let (quorum, leader, athens, _byzantium) = two_nodes(3).await;
    let other = quorum.peers.values().find(|address| **address != leader).unwrap().clone();
    let (mut reader, mut writer) = beat_stream(&other).await;
    send(&mut writer, &frame(&athens, 1, vec![beat(&athens, 1)])).await;
    let refused = answers(&mut reader).await.outcome.unwrap_err();
    assert_eq!((refused.kind, refused.leader), (ErrorKind::NotCoordinatorLeader, Some(leader)));
    quorum.stop_all().await;
    assert_eq!(ended(&mut reader).await.kind, ErrorKind::ShuttingDown);
}
