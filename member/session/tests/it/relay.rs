//! Heartbeats that a node carries between members and a coordinator simulated by the test.

use crate::support::beating::{Event, Events};
use crate::support::relaying::{LIFE, NOW, Relay, SimulatedStream, carried, cluster, granted, granted_as, nowhere};
use crate::support::{FakeListener, SOON, beat};
use archon_proto::convert::members::beat_proofs::{answer_statement, beat_statement, news_statement};
use archon_proto::convert::members::beats::{BeatAnswer, Beats, HeartbeatAnswers, LeaseGrant, NewsFor};
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_proto::v1;
use archon_security::BeatKey;
use archon_types::{
    BootId, ErrorDetail, ErrorKind, FencingProof, Incarnation, LeaseTiming, NodeId, StorageId, Version,
};
use tokio::time::timeout;
use uuid::Uuid;

fn over(node: u64, incarnation: Incarnation) -> FencingProof {
    FencingProof { node: NodeId::new(node), incarnation, version: Version::new(81) }
}

/// Interval between heartbeats, in milliseconds.
const EVERY: u64 = 200;
/// Interval so long that no further heartbeat comes in a test.
const ONCE: u64 = 5_000;

#[tokio::test]
async fn heartbeats_share_a_batch_and_get_separate_answers() {
    let coordinator = FakeListener::start().await;
    let (relay, nowhere) = (Relay::start(&[&coordinator]).await, nowhere());
    let (one, two) = (carried(1, &relay, EVERY, None, &nowhere), carried(2, &relay, EVERY, None, &nowhere));
    let serves = async {
        let mut serving = SimulatedStream::begin(&coordinator).await;
        loop {
            let beats = serving.answers(granted).await;
            assert_eq!(beats.relay, Some((NodeId::new(9), LIFE)));
        }
    };
    let answered = async |events: &mut Events| events.until_answered().await;
    let (one, two) = tokio::select! {
        events = async { tokio::join!(one.run(answered), two.run(answered)) } => events,
        never = serves => never,
    };
    for (events, lease_ms) in [(one, 1_001), (two, 1_002)] {
        let foreign = |event: &Event| matches!(event, Event::Taken(_, other) if *other != lease_ms);
        assert!(!events.iter().any(foreign), "{events:?}");
        let Some(Event::Answered(_, Some(departure_ms))) = events.last() else { panic!("not by a relay: {events:?}") };
        assert!(*departure_ms <= LeaseTiming::default().heartbeat_ms, "{departure_ms}");
    }
}

#[tokio::test]
async fn next_leader_answers_heartbeat_kept_by_relay() {
    let (gone, next_leader) = (FakeListener::start().await, FakeListener::start().await);
    let (relay, nowhere) = (Relay::start(&[&gone, &next_leader]).await, nowhere());
    let member = carried(1, &relay, ONCE, None, &nowhere);
    let events = member.run(async |events| {
        let mut silent = SimulatedStream::begin(&gone).await;
        silent.hears().await;
        let mut serving = SimulatedStream::begin(&next_leader).await;
        let beats = serving.hears().await;
        serving.says(&beats, Err(ErrorDetail::new(ErrorKind::NoQuorum, "an election goes on"))).await;
        assert_eq!(serving.answers(granted).await.beats[0].number, 1);
        events.until_taken().await
    });
    assert_eq!(events.await, [Event::Failed, Event::Taken(1, 1_001)], "no other heartbeat was sent");
}

#[tokio::test]
async fn relay_notifies_fenced_member_unasked() {
    let coordinator = FakeListener::start().await;
    let (relay, nowhere) = (Relay::start(&[&coordinator]).await, nowhere());
    let member = carried(1, &relay, ONCE, None, &nowhere);
    let events = member.run(async |events| {
        let _open = SimulatedStream::once(&coordinator, granted).await;
        events.until_answered().await;
        // A notice for another incarnation does not concern it.
        relay.told.ends(over(1, Incarnation::new(2)));
        relay.told.ends(over(1, LIFE));
        events.until_event(Event::Fenced).await
    });
    assert_eq!(events.await, [Event::Over(over(1, LIFE), relay.address.address.clone()), Event::Fenced]);
}

#[tokio::test]
async fn fenced_member_is_notified_without_any_coordinator() {
    let (relay, nowhere) = (Relay::start(&[]).await, nowhere());
    relay.told.ends(over(1, LIFE));
    carried(1, &relay, ONCE, None, &nowhere).run(async |events| events.until_event(Event::Fenced).await).await;
    let other = carried(2, &relay, ONCE, None, &nowhere);
    let events = other.run(async |events| events.until_event(Event::Failed).await).await;
    assert_eq!(events, [Event::Failed], "another member is not told so");
    // A client that does not know this notice reads it as a refusal of the relay.
    let (mut reader, mut writer) = relay.stream().await;
    let beats = vec![beat(NodeId::new(1), LIFE, 9)];
    writer.push(&v1::Beats::from(Beats { cluster: cluster(), batch: 7, beats, relay: None }));
    writer.flush().await.unwrap();
    let answer = timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an answer").unwrap();
    assert_eq!((answer.batch, answer.refused.is_some(), answer.over), (7, true, Some(over(1, LIFE).into())));
}

#[tokio::test]
async fn stopping_relay_is_left_at_once() {
    let coordinator = FakeListener::start().await;
    let (relay, nowhere) = (Relay::start(&[&coordinator]).await, nowhere());
    let member = carried(1, &relay, ONCE, None, &nowhere);
    let events = member.run(async |events| {
        let mut serving = SimulatedStream::begin(&coordinator).await;
        serving.hears().await;
        relay.stop.cancel();
        events.until_event(Event::Failed).await
    });
    assert_eq!(events.await, [Event::Failed]);
}

#[tokio::test]
async fn member_cannot_send_heartbeats_of_others() {
    let coordinator = FakeListener::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let (mut reader, mut writer) = relay.stream().await;
    let beats = [1, 2].map(|node| beat(NodeId::new(node), LIFE, 1)).into();
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
    let (relay, nowhere) = (Relay::start(&[&coordinator]).await, nowhere());
    let mut events = carried(1, &relay, EVERY, Some(key(1)), &nowhere)
        .run(async |events| {
            let mut serving = SimulatedStream::begin(&coordinator).await;
            for forger in [None, Some(key(7)), Some(key(1))] {
                let beats = serving.answers(|beats| granted_as(beats, forger.as_ref())).await;
                assert!(key(1).proves(&beat_statement(&beats.beats[0]), &beats.beats[0].proof));
            }
            events.until_taken().await
        })
        .await;
    let Some(Event::Taken(number, 1_001)) = events.pop() else { panic!("{events:?}") };
    assert!(number > 2, "the leases in the first answers are made up: {number}");
    assert!(events.len() >= 2 && events.iter().all(|event| *event == Event::Failed), "{events:?}");
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
    let (relay, nowhere) = (Relay::start(&[&coordinator]).await, nowhere());
    let member = carried(1, &relay, ONCE, None, &nowhere);
    let events = member.run(async |events| {
        let news = vec![encoded_news(7), encoded_news(9)];
        let _open = SimulatedStream::once(&coordinator, |beats| answer_with(beats, news, 1, None, None)).await;
        events.until(|event| matches!(event, Event::News(_))).await
    });
    let events = events.await;
    assert_eq!(events.last(), Some(&Event::News(Ok(Version::new(9)))));
    assert!(events.contains(&Event::Taken(1, 1_001)), "{events:?}");
}

#[tokio::test]
async fn table_updates_forged_by_relay_are_rejected() {
    let coordinator = FakeListener::start().await;
    let (relay, nowhere) = (Relay::start(&[&coordinator]).await, nowhere());
    carried(1, &relay, EVERY, Some(key(1)), &nowhere)
        .run(async |events| {
            let mut serving = SimulatedStream::begin(&coordinator).await;
            let own = key(1);
            let mut comes = async |news: Result<Version, ErrorKind>| {
                let events = events.until(|event| matches!(event, Event::News(_))).await;
                assert_eq!(events.last(), Some(&Event::News(news)));
                let taken = events.iter().any(|event| matches!(event, Event::Taken(_, 1_001)));
                assert!(taken, "the lease is the coordinator's, whatever came along: {events:?}");
            };
            for (version, forger, expected) in [(7, key(7), Err(ErrorKind::Refused)), (8, key(1), Ok(Version::new(8)))]
            {
                let news = vec![encoded_news(version)];
                serving.answers(|beats| answer_with(beats, news, 0, Some(&own), Some(&forger))).await;
                comes(expected).await;
            }
            // The proof is for other updates than the ones that come.
            let others = |beats: &Beats| {
                let news = vec![encoded_news(10)];
                HeartbeatAnswers { news, ..answer_with(beats, vec![encoded_news(9)], 0, Some(&own), Some(&own)) }
            };
            serving.answers(others).await;
            comes(Err(ErrorKind::Refused)).await;
        })
        .await;
}
