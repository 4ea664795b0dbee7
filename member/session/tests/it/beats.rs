//! Heartbeat streams to coordinators simulated by the test.

use crate::support::beating::{Event, Events, TestMember};
use crate::support::{FakeListener, SOON};
use archon_frames::{FrameReader, FrameWriter};
use archon_member::HeartbeatPace;
use archon_proto::convert::members::beats::{BeatAnswer, BeatAnswers, ClusterNow, HeartbeatAnswers, LeaseGrant};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_session::Coordinators;
use archon_types::{ClusterId, ErrorDetail, ErrorKind, Incarnation, NodeId};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

const NODE: NodeId = NodeId::new(2);
const LIFE: Incarnation = Incarnation::new(3);
/// Deadline of heartbeats that miss it.
const DEADLINE: Duration = Duration::from_secs(1);
/// Deadline of heartbeats that never miss it, also on a busy machine.
const LONG_DEADLINE: Duration = Duration::from_secs(120);
const NOW: ClusterNow = ClusterNow { replication_timeout_ms: 900, protocol: 2, term: 1, relays: 0, door_every_ms: 0 };

/// One stream at a coordinator.
struct Stream {
    reader: FrameReader,
    writer: FrameWriter,
}

impl Stream {
    async fn of(played: &FakeListener) -> Self {
        let (reader, writer) = played.stream().await;
        Self { reader, writer }
    }

    /// Returns the number of the next heartbeat.
    async fn heard(&mut self) -> u64 {
        let beats: v1::Beats = timeout(SOON, self.reader.next()).await.expect("a heartbeat").unwrap();
        let [beat] = &beats.beats[..] else { panic!("{beats:?}") };
        assert_eq!((beat.node, beat.incarnation, beats.batch), (NODE.get(), LIFE.get(), beat.number));
        beat.number
    }

    async fn says(&mut self, answers: BeatAnswers) {
        self.writer.push(&v1::BeatAnswers::from(answers));
        self.writer.flush().await.unwrap();
    }

    async fn grants(&mut self, number: u64) {
        let granted = Ok(LeaseGrant { lease_ms: 1_000, withdrawn: vec![] });
        let answer = BeatAnswer::new(NODE, LIFE, number, granted);
        self.says(BeatAnswers::new(number, Ok(judged(answer)))).await;
    }
}

fn judged(answer: BeatAnswer) -> HeartbeatAnswers {
    HeartbeatAnswers::new(vec![answer], NOW)
}

/// A member and its coordinators.
struct TestBed {
    coordinators: Coordinators,
    /// Deadline of a heartbeat.
    deadline: Duration,
}

impl TestBed {
    fn new(addresses: &[&str]) -> Self {
        Self::with_deadline(addresses, LONG_DEADLINE)
    }

    fn with_deadline(addresses: &[&str], deadline: Duration) -> Self {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        Self { coordinators: Coordinators::new(addresses, archon_security::Transport::default(), Vec::new), deadline }
    }

    /// Runs `test` with the member's events, while it sends heartbeats.
    async fn run<T>(&self, test: impl AsyncFnOnce(&mut Events) -> T) -> T {
        let answer_ms = u64::try_from(self.deadline.as_millis()).unwrap();
        let member = TestMember {
            coordinators: &self.coordinators,
            member: Member { cluster: ClusterId::new(Uuid::from_u128(1)), node: NODE, incarnation: LIFE },
            relays: Vec::new(),
            key: None,
            pace: HeartbeatPace {
                heartbeat_ms: 20,
                relay_ms: 20,
                answer_ms,
                pause_max_ms: 20,
                spread_ms: 0,
                distant_ms: 20,
            },
            now: NOW,
        };
        member.run(test).await
    }
}

#[tokio::test]
async fn answer_after_the_deadline_still_counts() {
    let played = FakeListener::start().await;
    let bed = TestBed::with_deadline(&[&played.address], DEADLINE);
    bed.run(async |events| {
        let mut stream = Stream::of(&played).await;
        assert_eq!(stream.heard().await, 1);
        // The first answer comes after the second, on the same stream.
        assert_eq!(stream.heard().await, 2);
        stream.grants(2).await;
        stream.grants(1).await;
        let mut events = events.until_event(Event::Taken(1, 1_000)).await;
        events.retain(|event| !matches!(event, Event::Answered(..)));
        assert_eq!(events, [Event::Failed, Event::Taken(2, 1_000), Event::Taken(1, 1_000)]);
        assert_eq!(bed.coordinators.order(), std::slice::from_ref(&played.address));
    })
    .await;
}

/// Otherwise, if coordinators answer after its deadline, a node never learns that it is failed, and does not register
/// again.
#[tokio::test]
async fn late_answer_ends_fenced_incarnation() {
    let played = FakeListener::start().await;
    let bed = TestBed::with_deadline(&[&played.address], DEADLINE);
    bed.run(async |events| {
        let mut stream = Stream::of(&played).await;
        assert_eq!(stream.heard().await, 1);
        // The second heartbeat is sent once the first one timed out.
        assert_eq!(stream.heard().await, 2);
        let over = ErrorDetail::new(ErrorKind::StaleIncarnation, "that life is over");
        stream.says(BeatAnswers::new(1, Ok(judged(BeatAnswer::new(NODE, LIFE, 1, Err(over)))))).await;
        assert_eq!(events.until_event(Event::Fenced).await, [Event::Failed, Event::Fenced]);
    })
    .await;
}

#[tokio::test]
async fn closed_stream_fails_at_once_and_next_beat_reconnects() {
    let played = FakeListener::start().await;
    let begun = Instant::now();
    TestBed::new(&[&played.address])
        .run(async |events| {
            assert_eq!(Stream::of(&played).await.heard().await, 1);
            let mut stream = Stream::of(&played).await;
            assert_eq!(stream.heard().await, 2);
            stream.grants(2).await;
            let events = events.until_answered().await;
            assert_eq!(events, [Event::Failed, Event::Taken(2, 1_000), Event::Answered(2, None)]);
        })
        .await;
    // This address has no listener any longer.
    let gone = FakeListener::start().await.address;
    TestBed::new(&[&gone, &played.address])
        .run(async |events| {
            let mut stream = Stream::of(&played).await;
            let number = stream.heard().await;
            stream.grants(number).await;
            assert_eq!(events.until_answered().await.last(), Some(&Event::Answered(number, None)));
        })
        .await;
    assert!(begun.elapsed() < LONG_DEADLINE, "after {:?}", begun.elapsed());
}

#[tokio::test]
async fn refusals_name_the_leader_or_end_the_incarnation() {
    let (played, leader) = (FakeListener::start().await, FakeListener::start().await);
    let bed = TestBed::new(&[&played.address]);
    bed.run(async |events| {
        let mut stream = Stream::of(&played).await;
        let number = stream.heard().await;
        let elsewhere = ErrorDetail::new(ErrorKind::NotCoordinatorLeader, "another one leads");
        let elsewhere = elsewhere.with_leader(Some(leader.address.clone()));
        stream.says(BeatAnswers::new(number, Err(elsewhere))).await;
        let mut stream = Stream::of(&leader).await;
        let number = stream.heard().await;
        let over = || ErrorDetail::new(ErrorKind::StaleIncarnation, "that life is over");
        // An answer for another incarnation has no effect.
        let former = Incarnation::new(2);
        let foreign = BeatAnswer::new(NODE, former, number, Err(over()));
        stream.says(BeatAnswers::new(number, Ok(judged(foreign)))).await;
        stream.grants(number).await;
        assert_eq!(events.until_answered().await.last(), Some(&Event::Answered(number, None)));
        assert_eq!(bed.coordinators.order()[0], leader.address);
        let number = stream.heard().await;
        let ours = BeatAnswer::new(NODE, LIFE, number, Err(over()));
        stream.says(BeatAnswers::new(number, Ok(judged(ours)))).await;
        events.until_event(Event::Fenced).await;
    })
    .await;
}

#[tokio::test]
async fn stream_with_overdue_answer_is_reconnected() {
    let played = FakeListener::start().await;
    let bed = TestBed::with_deadline(&[&played.address], DEADLINE);
    bed.run(async |events| {
        let mut silent = Stream::of(&played).await;
        // The peer reads heartbeats and never answers, like a connection that is cut off.
        while silent.reader.next::<v1::Beats>().await.is_ok() {}
        let mut stream = Stream::of(&played).await;
        let number = stream.heard().await;
        assert!(number > 2, "not before an answer was owed for a second: {number}");
        stream.grants(number).await;
        assert_eq!(events.until_answered().await.last(), Some(&Event::Answered(number, None)));
    })
    .await;
}

#[tokio::test]
async fn grant_of_new_leader_closes_stream_to_former_one() {
    let (former, next) = (FakeListener::start().await, FakeListener::start().await);
    let bed = TestBed::with_deadline(&[&former.address, &next.address], DEADLINE);
    bed.run(async |events| {
        let (mut from, mut to) = (Stream::of(&former).await, Stream::of(&next).await);
        assert_eq!(from.heard().await, 1);
        let number = to.heard().await;
        to.grants(number).await;
        let ended = timeout(SOON, from.reader.next::<v1::Beats>()).await.expect("an end");
        assert!(ended.is_err(), "{ended:?}");
        assert_eq!(events.until_answered().await.last(), Some(&Event::Answered(number, None)));
        assert_eq!(bed.coordinators.order()[0], next.address);
    })
    .await;
}

#[tokio::test]
async fn unreadable_answer_ends_stream_and_grants_nothing() {
    let played = FakeListener::start().await;
    let bed = TestBed::new(&[&played.address]);
    bed.run(async |events| {
        let mut stream = Stream::of(&played).await;
        let number = stream.heard().await;
        // Without a replication time-out: not an answer of a coordinator.
        stream.writer.push(&v1::BeatAnswers { batch: number, ..v1::BeatAnswers::default() });
        stream.writer.flush().await.unwrap();
        let ended = timeout(SOON, stream.reader.next::<v1::Beats>()).await.expect("an end");
        assert!(ended.is_err(), "{ended:?}");
        assert_eq!(events.until_event(Event::Failed).await, [Event::Failed]);
    })
    .await;
}
