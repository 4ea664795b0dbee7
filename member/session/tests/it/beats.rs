//! Heartbeat streams to coordinators simulated by the test.

use crate::support::{self, FakeListener, SOON};
use archon_frames::{FrameReader, FrameWriter};
use archon_member::{GrantOutcome, LeaseAnswer};
use archon_proto::convert::members::beats::{Beat, BeatAnswer, BeatAnswers, ClusterNow, HeartbeatAnswers, LeaseGrant};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_session::{BeatFailure, BeatStreams, Coordinators, Recipient};
use archon_types::{ClusterId, ErrorDetail, ErrorKind, Incarnation, NodeId, RelayAddress};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
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

fn beat(number: u64) -> Beat {
    support::beat(NODE, LIFE, number)
}

/// A member: its coordinators, and the numbers of processed answers.
struct TestBed {
    coordinators: Coordinators,
    /// Deadline of a heartbeat.
    deadline: Duration,
    taken: Mutex<Vec<u64>>,
}

impl TestBed {
    fn new(played: &[&FakeListener]) -> Self {
        Self::with_deadline(played, LONG_DEADLINE)
    }

    fn with_deadline(played: &[&FakeListener], deadline: Duration) -> Self {
        let addresses = played.iter().map(|played| played.address.clone()).collect();
        Self {
            coordinators: Coordinators::new(addresses, archon_security::Transport::default(), Vec::new),
            deadline,
            taken: Mutex::default(),
        }
    }

    /// Runs `test` while incoming messages are processed.
    async fn run<T>(&self, test: impl AsyncFn(&BeatStreams) -> T) -> T {
        let member = Member { cluster: ClusterId::new(Uuid::from_u128(1)), node: NODE, incarnation: LIFE };
        let (streams, mut heard) = self.coordinators.beat_streams(member, None, self.deadline);
        let take = |answer: LeaseAnswer, now| {
            assert_eq!(now, NOW);
            self.taken.lock().unwrap().push(answer.number);
            GrantOutcome::Granted { lapsed_ms: 0, withdrawn: answer.withdrawn }
        };
        tokio::select! {
            result = test(&streams) => result,
            never = streams.listen(&mut heard, take, |over, _| panic!("{over:?}"), |news| panic!("{news:?}")) => match never {},
        }
    }

    async fn beat(&self, streams: &BeatStreams, to: &FakeListener, number: u64) -> Result<(), BeatFailure> {
        self.coordinators.beat(streams, Recipient::Coordinator(&to.address), beat(number)).await.map(drop)
    }

    async fn until_taken(&self, number: u64) {
        let until = Instant::now() + SOON;
        while !self.taken.lock().unwrap().contains(&number) {
            assert!(Instant::now() < until, "not taken: {number}; taken: {:?}", self.taken.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn answer_after_the_deadline_still_counts() {
    let played = FakeListener::start().await;
    let bed = TestBed::with_deadline(&[&played], DEADLINE);
    bed.run(async |streams| {
        let serves = async {
            let mut stream = Stream::of(&played).await;
            assert_eq!(stream.heard().await, 1);
            // The first answer comes after the second, on the same stream.
            assert_eq!(stream.heard().await, 2);
            stream.grants(2).await;
            stream.grants(1).await;
            stream
        };
        let asks = async {
            assert_eq!(bed.beat(streams, &played, 1).await, Err(BeatFailure::Failed(None)));
            assert_eq!(bed.beat(streams, &played, 2).await, Ok(()));
            bed.until_taken(1).await;
        };
        let (_stream, ()) = tokio::join!(serves, asks);
        assert_eq!(*bed.taken.lock().unwrap(), [2, 1]);
        assert_eq!(bed.coordinators.order(), std::slice::from_ref(&played.address));
    })
    .await;
}

/// Otherwise, if coordinators answer after its deadline, a node never learns that it is failed, and does not register
/// again.
#[tokio::test]
async fn late_answer_ends_fenced_incarnation() {
    let played = FakeListener::start().await;
    let bed = TestBed::with_deadline(&[&played], DEADLINE);
    bed.run(async |streams| {
        let serves = async {
            let mut stream = Stream::of(&played).await;
            assert_eq!(stream.heard().await, 1);
            // The second heartbeat is sent once the first one timed out.
            assert_eq!(stream.heard().await, 2);
            let over = ErrorDetail::new(ErrorKind::StaleIncarnation, "that life is over");
            stream.says(BeatAnswers::new(1, Ok(judged(BeatAnswer::new(NODE, LIFE, 1, Err(over)))))).await;
            stream
        };
        let asks = async {
            assert_eq!(bed.beat(streams, &played, 1).await, Err(BeatFailure::Failed(None)));
            assert_eq!(bed.beat(streams, &played, 2).await, Err(BeatFailure::Stale));
        };
        tokio::join!(serves, asks);
    })
    .await;
}

#[tokio::test]
async fn closed_stream_fails_at_once_and_next_beat_reconnects() {
    let played = FakeListener::start().await;
    let bed = TestBed::new(&[&played]);
    bed.run(async |streams| {
        let breaks_off = async {
            assert_eq!(Stream::of(&played).await.heard().await, 1);
        };
        let begun = Instant::now();
        let (asked, ()) = tokio::join!(bed.beat(streams, &played, 1), breaks_off);
        assert_eq!(asked, Err(BeatFailure::Failed(None)));
        assert!(begun.elapsed() < LONG_DEADLINE, "after {:?}", begun.elapsed());
        let serves = async {
            let mut stream = Stream::of(&played).await;
            let number = stream.heard().await;
            stream.grants(number).await;
            stream
        };
        let (asked, _stream) = tokio::join!(bed.beat(streams, &played, 2), serves);
        assert_eq!(asked, Ok(()));
    })
    .await;
    // This address has no listener any longer.
    let address = FakeListener::start().await.address;
    bed.run(async |streams| {
        let begun = Instant::now();
        let asked = bed.coordinators.beat(streams, Recipient::Coordinator(&address), beat(3)).await;
        assert_eq!(asked.map(drop), Err(BeatFailure::Failed(None)));
        assert!(begun.elapsed() < LONG_DEADLINE, "after {:?}", begun.elapsed());
    })
    .await;
}

#[tokio::test]
async fn refusals_name_the_leader_or_end_the_incarnation() {
    let played = FakeListener::start().await;
    let bed = TestBed::new(&[&played]);
    bed.run(async |streams| {
        let serves = async {
            let mut stream = Stream::of(&played).await;
            let number = stream.heard().await;
            let elsewhere = ErrorDetail::new(ErrorKind::NotCoordinatorLeader, "another one leads");
            let elsewhere = elsewhere.with_leader(Some("127.0.0.1:1".to_owned()));
            stream.says(BeatAnswers::new(number, Err(elsewhere))).await;
            let number = stream.heard().await;
            let over = || ErrorDetail::new(ErrorKind::StaleIncarnation, "that life is over");
            // An answer for another incarnation has no effect.
            let former = Incarnation::new(2);
            let foreign = BeatAnswer::new(NODE, former, number, Err(over()));
            stream.says(BeatAnswers::new(number, Ok(judged(foreign)))).await;
            stream.grants(number).await;
            let number = stream.heard().await;
            let ours = BeatAnswer::new(NODE, LIFE, number, Err(over()));
            stream.says(BeatAnswers::new(number, Ok(judged(ours)))).await;
        };
        let asks = async {
            let hint = Some("127.0.0.1:1".to_owned());
            assert_eq!(bed.beat(streams, &played, 1).await, Err(BeatFailure::Failed(hint)));
            assert_eq!(bed.beat(streams, &played, 2).await, Ok(()));
            assert_eq!(bed.beat(streams, &played, 3).await, Err(BeatFailure::Stale));
        };
        tokio::join!(serves, asks);
    })
    .await;
}

#[tokio::test]
async fn stream_with_overdue_answer_is_reconnected() {
    let played = FakeListener::start().await;
    let bed = TestBed::with_deadline(&[&played], DEADLINE);
    bed.run(async |streams| {
        let serves = async {
            let mut silent = Stream::of(&played).await;
            // The peer reads heartbeats and never answers, like a connection that is cut off.
            let hears = async {
                while silent.reader.next::<v1::Beats>().await.is_ok() {}
                Stream::of(&played).await
            };
            let mut stream = hears.await;
            let number = stream.heard().await;
            stream.grants(number).await;
            stream
        };
        let asks = async {
            let until = Instant::now() + SOON;
            let mut number = 1;
            while bed.beat(streams, &played, number).await.is_err() {
                assert!(Instant::now() < until, "no answer to {number} heartbeats");
                number += 1;
            }
            number
        };
        let (_stream, asked) = tokio::join!(serves, asks);
        assert!(asked > 2, "not before an answer was owed for a second: {asked}");
    })
    .await;
}

#[tokio::test]
async fn grant_of_new_leader_closes_stream_to_former_one() {
    let (former, next) = (FakeListener::start().await, FakeListener::start().await);
    let bed = TestBed::with_deadline(&[&former, &next], DEADLINE);
    bed.run(async |streams| {
        let serves = async {
            let (mut from, mut to) = (Stream::of(&former).await, Stream::of(&next).await);
            assert_eq!(from.heard().await, 1);
            let number = to.heard().await;
            to.grants(number).await;
            let ended = timeout(SOON, from.reader.next::<v1::Beats>()).await.expect("an end");
            assert!(ended.is_err(), "{ended:?}");
            to
        };
        let asks = async {
            bed.beat(streams, &former, 1).await.unwrap_err();
            assert_eq!(bed.beat(streams, &next, 2).await, Ok(()));
        };
        tokio::join!(serves, asks);
        assert_eq!(bed.coordinators.order()[0], next.address);
    })
    .await;
}

#[tokio::test]
async fn unreadable_answer_ends_stream_and_grants_nothing() {
    let played = FakeListener::start().await;
    let bed = TestBed::new(&[&played]);
    bed.run(async |streams| {
        let serves = async {
            let mut stream = Stream::of(&played).await;
            let number = stream.heard().await;
            // Without a replication time-out: not an answer of a coordinator.
            stream.writer.push(&v1::BeatAnswers { batch: number, ..v1::BeatAnswers::default() });
            stream.writer.flush().await.unwrap();
            let ended = timeout(SOON, stream.reader.next::<v1::Beats>()).await.expect("an end");
            assert!(ended.is_err(), "{ended:?}");
        };
        let (asked, ()) = tokio::join!(bed.beat(streams, &played, 1), serves);
        assert_eq!(asked, Err(BeatFailure::Failed(None)));
        assert!(bed.taken.lock().unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn few_members_without_relay_ask_the_leader_directly() {
    let bed = TestBed {
        coordinators: Coordinators::new(vec!["c".into()], archon_security::Transport::default(), Vec::new),
        deadline: LONG_DEADLINE,
        taken: Mutex::default(),
    };
    let relays =
        [1, 2].map(|number| RelayAddress { node: NodeId::new(number), name: String::new(), address: String::new() });
    let asked = AtomicU32::new(0);
    let attempt = async |to: Recipient<'_>| match to {
        Recipient::Relay(_) => Err(BeatFailure::NoCoordinator),
        Recipient::Coordinator(_) => {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    };
    for _ in 0..3_200 {
        let answered = bed.coordinators.heartbeat(&relays, attempt).await;
        assert!(matches!(answered, Ok(()) | Err(BeatFailure::NoCoordinator)), "{answered:?}");
    }
    // One in 32: a hundred on average, with a standard deviation of ten.
    let asked = asked.into_inner();
    assert!((30..300).contains(&asked), "{asked} of 3200 asked for themselves");
}
