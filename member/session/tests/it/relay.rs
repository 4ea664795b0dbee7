//! Heartbeats that a node carries between members and a coordinator simulated by the test.

use crate::support::relaying::{LIFE, NOW, Relay, RelayedMember, SimulatedStream, cluster, granted, granted_as};
use crate::support::{FakeListener, SOON};
use archon_proto::convert::members::beat_proofs::{answer_statement, beat_statement, news_statement};
use archon_proto::convert::members::beats::{BeatAnswer, Beats, HeartbeatAnswers, LeaseGrant, NewsFor};
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_proto::v1;
use archon_security::BeatKey;
use archon_session::BeatFailure;
use archon_types::{
    BootId, ErrorDetail, ErrorKind, FencingProof, Incarnation, LeaseTiming, NodeId, StorageId, Version,
};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

fn over(node: u64, incarnation: Incarnation) -> FencingProof {
    FencingProof { node: NodeId::new(node), incarnation, version: Version::new(81) }
}

#[tokio::test]
async fn heartbeats_share_a_batch_and_get_separate_answers() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let (mut one, mut two) = (RelayedMember::new(1), RelayedMember::new(2));
    let serves = async {
        let mut serving = SimulatedStream::begin(&coordinator).await;
        let mut nodes = Vec::new();
        while nodes.len() < 2 {
            let beats = serving.answers(granted).await;
            assert_eq!(beats.relay, Some((NodeId::new(9), LIFE)));
            nodes.extend(beats.beats.iter().map(|beat| beat.node.get()));
        }
        nodes.sort_unstable();
        assert_eq!(nodes, [1, 2]);
        serving
    };
    let (_open, one, two) = tokio::join!(serves, one.asks(&relay, 1, true), two.asks(&relay, 1, true));
    for ((answered, leases), lease_ms) in [(one, 1_001), (two, 1_002)] {
        assert_eq!(leases, [lease_ms]);
        let departure_ms = answered.unwrap().next_departure_ms.expect("a relay's answer");
        assert!(departure_ms <= LeaseTiming::default().heartbeat_ms, "{departure_ms}");
    }
}

#[tokio::test]
async fn next_leader_answers_heartbeat_kept_by_relay() {
    let (gone, next_leader) = (FakeListener::start().await, FakeListener::start().await);
    let relay = Relay::start(&[&gone, &next_leader]).await;
    let mut member = RelayedMember::new(1);
    let serves = async {
        let mut silent = SimulatedStream::begin(&gone).await;
        silent.hears().await;
        let mut serving = SimulatedStream::begin(&next_leader).await;
        let beats = serving.hears().await;
        serving.says(&beats, Err(ErrorDetail::new(ErrorKind::NoQuorum, "an election goes on"))).await;
        assert_eq!(serving.answers(granted).await.beats[0].number, 1);
        (serving, silent)
    };
    let begun = Instant::now();
    let (_open, (answered, leases)) = tokio::join!(serves, member.asks(&relay, 1, true));
    assert_eq!(answered.map(drop), Err(BeatFailure::NoCoordinator));
    assert_eq!(leases, [1_001], "after {:?}", begun.elapsed());
}

#[tokio::test]
async fn relay_notifies_fenced_member_unasked() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = RelayedMember::new(1);
    let serves = SimulatedStream::once(&coordinator, granted);
    let (_open, (answered, _)) = tokio::join!(serves, member.asks(&relay, 1, true));
    answered.unwrap();
    // A notice for another incarnation does not concern it.
    relay.told.ends(over(1, Incarnation::new(2)));
    relay.told.ends(over(1, LIFE));
    assert_eq!(member.told_over().await, (over(1, LIFE), relay.address.address.clone()));
}

#[tokio::test]
async fn fenced_member_is_notified_without_any_coordinator() {
    let relay = Relay::start(&[]).await;
    relay.told.ends(over(1, LIFE));
    let (answered, _) = RelayedMember::new(1).asks(&relay, 1, false).await;
    assert_eq!(answered.map(drop), Err(BeatFailure::Stale));
    let (answered, _) = RelayedMember::new(2).asks(&relay, 1, false).await;
    let lives = matches!(answered, Err(BeatFailure::NoCoordinator | BeatFailure::Failed(None)));
    assert!(lives, "another member is not told so: {answered:?}");
    // A client that does not know this notice reads it as a refusal of the relay.
    let (mut reader, mut writer) = relay.stream().await;
    let beats = vec![RelayedMember::new(1).beat(9)];
    writer.push(&v1::Beats::from(Beats { cluster: cluster(), batch: 7, beats, relay: None }));
    writer.flush().await.unwrap();
    let answer = timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an answer").unwrap();
    assert_eq!((answer.batch, answer.refused.is_some(), answer.over), (7, true, Some(over(1, LIFE).into())));
}

#[tokio::test]
async fn stopping_relay_is_left_at_once() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = RelayedMember::new(1);
    let stops = async {
        let mut serving = SimulatedStream::begin(&coordinator).await;
        serving.hears().await;
        relay.stop.cancel();
        serving
    };
    let ((answered, _), _open) = tokio::join!(member.asks(&relay, 1, false), stops);
    assert_eq!(answered.map(drop), Err(BeatFailure::Failed(None)));
}

#[tokio::test]
async fn member_cannot_send_heartbeats_of_others() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let (mut reader, mut writer) = relay.stream().await;
    let beats = [RelayedMember::new(1).beat(1), RelayedMember::new(2).beat(1)].into();
    writer.push(&v1::Beats::from(Beats { cluster: cluster(), batch: 1, beats, relay: None }));
    writer.flush().await.unwrap();
    let answer = timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an end");
    let Err(archon_frames::FrameError::Refused(detail)) = answer else { panic!("{answer:?}") };
    assert!(detail.kind == ErrorKind::InvalidArgument && detail.message.contains("one in a frame"), "{detail}");
}

fn key(storage: u128) -> BeatKey {
    BeatKey::new(StorageId::new(Uuid::from_u128(storage)), BootId::new(Uuid::from_u128(2)))
}

#[tokio::test]
async fn lease_forged_by_relay_is_rejected() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = RelayedMember::with_key(1, Some(key(1)));
    let serves = async {
        let mut serving = SimulatedStream::begin(&coordinator).await;
        for forger in [None, Some(key(7)), Some(key(1))] {
            let beats = serving.answers(|beats| granted_as(beats, forger.as_ref())).await;
            assert!(key(1).proves(&beat_statement(&beats.beats[0]), &beats.beats[0].proof));
        }
        serving
    };
    let asks = async {
        for number in [1, 2] {
            let (answered, leases) = member.asks(&relay, number, false).await;
            assert_eq!((answered.map(drop), leases), (Err(BeatFailure::Failed(None)), vec![]), "made up");
        }
        member.asks(&relay, 3, true).await
    };
    let (_open, (answered, leases)) = tokio::join!(serves, asks);
    assert!(answered.is_ok());
    assert_eq!(leases, [1_001]);
}

/// Returns updates that bring a node to this version, as a coordinator encodes them.
fn encoded_news(version: u64) -> bytes::Bytes {
    let (complete, newest) = (Version::new(version), Version::new(version));
    let (deltas, coordinators) = (Vec::new(), Vec::new());
    TableUpdates { deltas, nodes: None, tables: None, complete, newest, coordinators }
        .with_encoded(Vec::new(), bytes::Bytes::new())
}

/// Answers the first heartbeat of a batch, with the update at `place`.
fn answer_with(
    beats: &Beats,
    news: Vec<bytes::Bytes>,
    place: usize,
    key: Option<&BeatKey>,
    forger: Option<&BeatKey>,
) -> HeartbeatAnswers {
    let beat = &beats.beats[0];
    let granted = LeaseGrant { lease_ms: 1_000 + beat.node.get(), withdrawn: vec![] };
    let mut answer = BeatAnswer::new(beat.node, beat.incarnation, beat.number, Ok(granted));
    if let (Some(key), Some(forger)) = (key, forger) {
        answer.proof = key.prove(&answer_statement(&answer, &NOW));
        let proof = forger.prove(&news_statement(beat.node, beat.incarnation, &BeatKey::digest(&news[place])));
        answer.news = Some(NewsFor { place, proof });
    } else {
        answer.news = Some(NewsFor { place, proof: bytes::Bytes::new() });
    }
    HeartbeatAnswers { news, ..HeartbeatAnswers::new(vec![answer], NOW) }
}

#[tokio::test]
async fn table_updates_go_to_member_named_in_answer() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = RelayedMember::new(1);
    let serves = SimulatedStream::once(&coordinator, |beats| {
        answer_with(beats, vec![encoded_news(7), encoded_news(9)], 1, None, None)
    });
    let (_open, (answered, leases)) = tokio::join!(serves, member.asks(&relay, 1, true));
    assert!(answered.is_ok() && leases == [1_001]);
    assert_eq!(*member.news.lock().unwrap(), [Ok(Version::new(9))]);
}

#[tokio::test]
async fn table_updates_forged_by_relay_are_rejected() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = RelayedMember::with_key(1, Some(key(1)));
    let serves = async {
        let mut serving = SimulatedStream::begin(&coordinator).await;
        let own = key(1);
        for (version, forger) in [(7, key(7)), (8, key(1))] {
            let news = vec![encoded_news(version)];
            serving.answers(|beats| answer_with(beats, news, 0, Some(&own), Some(&forger))).await;
        }
        // The proof is for other updates than the ones that come.
        let others = |beats: &Beats| {
            let news = vec![encoded_news(10)];
            HeartbeatAnswers { news, ..answer_with(beats, vec![encoded_news(9)], 0, Some(&own), Some(&own)) }
        };
        serving.answers(others).await;
        serving
    };
    let asks = async {
        for number in [1, 2, 3] {
            let (answered, leases) = member.asks(&relay, number, true).await;
            assert!(answered.is_ok() && leases == [1_001], "the lease is the coordinator's, whatever came along");
        }
    };
    let (_open, ()) = tokio::join!(serves, asks);
    let news = [Err(ErrorKind::Refused), Ok(Version::new(8)), Err(ErrorKind::Refused)];
    assert_eq!(*member.news.lock().unwrap(), news);
}
