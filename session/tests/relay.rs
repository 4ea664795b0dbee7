//! Heartbeats that a node carries for others, between members and a coordinator that the test plays.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use archon_frames::{FrameReader, FrameWriter, StreamKind};
use archon_member::{LeaseAnswer, Rows, Taken};
use archon_proto::convert::beat_proofs::{answer_statement, beat_statement, news_statement};
use archon_proto::convert::beats::{Beat, BeatAnswer, BeatAnswers, Beats, ClusterNow, Granted, Judged, NewsFor};
use archon_proto::convert::news::News;
use archon_proto::convert::session::Member;
use archon_proto::v1;
use archon_security::{BeatKey, Transport};
use archon_session::{
    Answered, BeatStreams, BootClock, Coordinators, Heard, NotGranted, Recipient, RelayAddress, RelayStreams,
};
use archon_types::{
    BootId, ClusterId, ErrorDetail, ErrorKind, Incarnation, LeaseTiming, NodeId, Over, PushKey, StorageId, Version,
};
use std::sync::{Arc, Mutex};
use support::{Played, SOON};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const LIFE: Incarnation = Incarnation::new(3);
const NOW: ClusterNow = ClusterNow { replication_timeout_ms: 900, protocol: 2, term: 5, relays: 2, door_every_ms: 0 };

fn cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u128(1))
}

/// The stream on which a batch came, for the answer.
struct Came {
    beats: Beats,
    stream: FrameWriter,
}

async fn next(reader: &mut FrameReader) -> Beats {
    let beats: v1::Beats = timeout(SOON, reader.next()).await.expect("a batch").unwrap();
    beats.try_into().unwrap()
}

impl Came {
    async fn says(mut self, outcome: Result<Judged, ErrorDetail>) -> FrameWriter {
        self.stream.push(&v1::BeatAnswers::from(BeatAnswers::new(self.beats.batch, outcome)));
        self.stream.flush().await.unwrap();
        self.stream
    }

    async fn grants(self) -> FrameWriter {
        self.grants_as(None).await
    }

    /// Proves each answer with the key that it takes for the members', if it has one.
    async fn grants_as(self, key: Option<&BeatKey>) -> FrameWriter {
        let granted = |beat: &Beat| {
            let Beat { node, incarnation, number, .. } = *beat;
            // By the lease it is seen whose answer it is.
            let outcome = Ok(Granted { lease_ms: 1_000 + node.get(), withdrawn: vec![] });
            let mut answer = BeatAnswer::new(node, incarnation, number, outcome);
            if let Some(key) = key {
                answer.proof = key.prove(&answer_statement(&answer, &NOW));
            }
            answer
        };
        let answers = self.beats.beats.iter().map(granted).collect();
        self.says(Ok(Judged::new(answers, NOW))).await
    }
}

/// The lives that are over, as the relay's node was told.
#[derive(Default)]
struct Told {
    over: Mutex<Vec<Over>>,
    version: watch::Sender<Version>,
}

impl Told {
    fn ends(&self, over: Over) {
        self.over.lock().unwrap().push(over);
        self.version.send_replace(over.version);
    }
}

impl Rows for Told {
    fn members_max(&self) -> usize {
        100
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<Over> {
        let over = self.over.lock().unwrap();
        over.iter().find(|over| (over.node, over.incarnation) == (node, incarnation)).copied()
    }
}

/// A relay on a port of its own, and the coordinators that it knows. It ends with this.
struct Relay {
    address: RelayAddress,
    told: Arc<Told>,
    stop: CancellationToken,
}

impl Relay {
    async fn start(coordinators: &[&Played]) -> Self {
        let played = Played::start().await;
        let address = played.address.clone();
        let node = NodeId::new(9);
        let (streams, stop, told) = (RelayStreams::new(), CancellationToken::new(), Arc::new(Told::default()));
        let addresses = coordinators.iter().map(|played| played.address.clone()).collect();
        tokio::spawn({
            let (streams, stop, told) = (streams.clone(), stop.clone(), Arc::clone(&told));
            async move {
                let coordinators = Coordinators::new(addresses, Transport::default(), Vec::new);
                let member = Member { cluster: cluster(), node, incarnation: LIFE };
                let (timing, changes) = (LeaseTiming::default(), told.version.subscribe());
                let carries = streams.carry(&coordinators, &BootClock, member, timing, &*told, changes);
                tokio::select! {
                    never = carries => match never {},
                    () = stop.cancelled() => {}
                }
            }
        });
        tokio::spawn({
            let stop = stop.clone();
            async move {
                loop {
                    let (reader, writer) = played.next_stream().await;
                    let (streams, stop) = (streams.clone(), stop.clone());
                    tokio::spawn(async move { streams.serve(&BootClock, reader, writer, &|_| Ok(()), &stop).await });
                }
            }
        });
        Self { address: RelayAddress { node, name: "relay".to_owned(), address }, told, stop }
    }
}

impl Relay {
    async fn stream(&self) -> (FrameReader, FrameWriter) {
        let (transport, expected) = (Transport::default(), archon_security::Expected::Servers);
        let (address, kind) = (&self.address.address, StreamKind::Beats);
        archon_frames::connect(&transport, address, &expected, kind, 1 << 20, SOON).await.unwrap()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A member, and what it was told of lives that are over, with who said so.
struct Carried {
    streams: BeatStreams,
    heard: Heard,
    node: NodeId,
    told: mpsc::UnboundedSender<(Over, String)>,
    hears: mpsc::UnboundedReceiver<(Over, String)>,
    /// What came of tables and nodes: up to where it holds everything then, or why it is not taken in.
    news: Mutex<Vec<Result<Version, ErrorKind>>>,
}

impl Carried {
    fn new(node: u64) -> Self {
        Self::with_key(node, None)
    }

    fn with_key(node: u64, key: Option<BeatKey>) -> Self {
        let node = NodeId::new(node);
        let member = Member { cluster: cluster(), node, incarnation: LIFE };
        let (streams, heard) = BeatStreams::new(member, key, Transport::default(), SOON);
        let (told, hears) = mpsc::unbounded_channel();
        Self { streams, heard, node, told, hears, news: Mutex::default() }
    }

    fn beat(&self, number: u64) -> Beat {
        Beat {
            node: self.node,
            incarnation: LIFE,
            number,
            table_version: Version::ZERO,
            stopping: false,
            push_key: PushKey::new(Uuid::from_u128(5)),
            load: None,
            doors: None,
            proof: bytes::Bytes::new(),
        }
    }

    /// Beats by the relay once, and then listens until a lease was taken in, if `until_taken`.
    async fn asks(
        &mut self,
        relay: &Relay,
        number: u64,
        until_taken: bool,
    ) -> (Result<Answered, NotGranted>, Vec<u64>) {
        let (leases, mut taken) = mpsc::unbounded_channel();
        let take = |answer: LeaseAnswer, now| {
            assert_eq!((answer.node, now), (self.node, NOW));
            leases.send(answer.lease_ms).unwrap();
            Taken::Granted { lapsed_ms: 0, withdrawn: answer.withdrawn }
        };
        let beat = self.beat(number);
        let asks = async {
            let answered = self.streams.beat(Recipient::Relay(&relay.address), beat).await;
            let mut leases = Vec::new();
            if until_taken {
                leases.extend(timeout(SOON, taken.recv()).await.expect("a lease"));
            }
            (answered, leases)
        };
        let told_over = |over: Over, by: &str| {
            self.told.send((over, by.to_owned())).unwrap();
            (over.node, over.incarnation) == (self.node, LIFE)
        };
        let news = |news: Result<News, ErrorDetail>| {
            self.news.lock().unwrap().push(news.map(|news| news.complete).map_err(|detail| detail.kind));
        };
        tokio::select! {
            asked = asks => asked,
            never = self.streams.listen(&mut self.heard, take, told_over, news) => match never {},
        }
    }

    /// Listens until it is told that a life is over.
    async fn told_over(&mut self) -> (Over, String) {
        let take = |answer: LeaseAnswer, _| panic!("{answer:?}");
        let told_over = |over: Over, by: &str| self.told.send((over, by.to_owned())).is_ok();
        tokio::select! {
            told = timeout(SOON, self.hears.recv()) => told.expect("word of an end").unwrap(),
            never = self.streams.listen(&mut self.heard, take, told_over, |_| ()) => match never {},
        }
    }
}

fn over(node: u64, incarnation: Incarnation) -> Over {
    Over { node: NodeId::new(node), incarnation, version: Version::new(81) }
}

#[tokio::test]
async fn heartbeats_of_two_members_travel_together_and_each_has_its_own_answer() {
    let coordinator = Played::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let (mut one, mut two) = (Carried::new(1), Carried::new(2));
    let serves = async {
        let (mut reader, mut stream) = coordinator.stream().await;
        let mut nodes = Vec::new();
        while nodes.len() < 2 {
            let beats = next(&mut reader).await;
            assert_eq!(beats.relay, Some((NodeId::new(9), LIFE)));
            nodes.extend(beats.beats.iter().map(|beat| beat.node.get()));
            stream = Came { beats, stream }.grants().await;
        }
        nodes.sort_unstable();
        assert_eq!(nodes, [1, 2]);
        (reader, stream)
    };
    let (_open, one, two) = tokio::join!(serves, one.asks(&relay, 1, true), two.asks(&relay, 1, true));
    for ((answered, leases), lease_ms) in [(one, 1_001), (two, 1_002)] {
        assert_eq!(leases, [lease_ms]);
        let departure_ms = answered.unwrap().next_departure_ms.expect("a relay's answer");
        assert!(departure_ms <= LeaseTiming::default().heartbeat_ms, "{departure_ms}");
    }
}

#[tokio::test]
async fn whoever_leads_next_answers_the_heartbeat_that_the_relay_kept() {
    let (gone, next_leader) = (Played::start().await, Played::start().await);
    let relay = Relay::start(&[&gone, &next_leader]).await;
    let mut member = Carried::new(1);
    let serves = async {
        let (mut silent, _writer) = gone.stream().await;
        next(&mut silent).await;
        let (mut reader, stream) = next_leader.stream().await;
        let beats = next(&mut reader).await;
        let elsewhere = ErrorDetail::new(ErrorKind::NoQuorum, "an election goes on");
        let stream = Came { beats, stream }.says(Err(elsewhere)).await;
        let beats = next(&mut reader).await;
        assert_eq!(beats.beats[0].number, 1);
        (Came { beats, stream }.grants().await, reader, silent)
    };
    let begun = Instant::now();
    let (_open, (answered, leases)) = tokio::join!(serves, member.asks(&relay, 1, true));
    assert_eq!(answered.map(drop), Err(NotGranted::NoCoordinator));
    assert_eq!(leases, [1_001], "after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_member_that_is_failed_hears_so_from_its_relay_without_asking() {
    let coordinator = Played::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = Carried::new(1);
    let serves = async {
        let (mut reader, stream) = coordinator.stream().await;
        let beats = next(&mut reader).await;
        (Came { beats, stream }.grants().await, reader)
    };
    let (_open, (answered, _)) = tokio::join!(serves, member.asks(&relay, 1, true));
    answered.unwrap();
    // That of another life is not for it.
    relay.told.ends(over(1, Incarnation::new(2)));
    relay.told.ends(over(1, LIFE));
    assert_eq!(member.told_over().await, (over(1, LIFE), relay.address.address.clone()));
}

#[tokio::test]
async fn a_life_that_is_over_hears_so_when_it_calls_though_no_coordinator_answers() {
    let relay = Relay::start(&[]).await;
    relay.told.ends(over(1, LIFE));
    let (answered, _) = Carried::new(1).asks(&relay, 1, false).await;
    assert_eq!(answered.map(drop), Err(NotGranted::Stale));
    let (answered, _) = Carried::new(2).asks(&relay, 1, false).await;
    let lives = matches!(answered, Err(NotGranted::NoCoordinator | NotGranted::Failed(None)));
    assert!(lives, "another member is not told so: {answered:?}");
    // One that knows of no such word takes it for a refusal of this relay.
    let (mut reader, mut writer) = relay.stream().await;
    let beats = vec![Carried::new(1).beat(9)];
    writer.push(&v1::Beats::from(Beats { cluster: cluster(), batch: 7, beats, relay: None }));
    writer.flush().await.unwrap();
    let answer = timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an answer").unwrap();
    assert_eq!((answer.batch, answer.refused.is_some(), answer.over), (7, true, Some(over(1, LIFE).into())));
}

#[tokio::test]
async fn a_relay_that_stops_says_so_and_is_left_at_once() {
    let coordinator = Played::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = Carried::new(1);
    let stops = async {
        let (mut reader, _writer) = coordinator.stream().await;
        next(&mut reader).await;
        relay.stop.cancel();
        reader
    };
    let ((answered, _), _reader) = tokio::join!(member.asks(&relay, 1, false), stops);
    assert_eq!(answered.map(drop), Err(NotGranted::Failed(None)));
}

#[tokio::test]
async fn heartbeats_of_others_that_a_member_sends_are_refused() {
    let coordinator = Played::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let (mut reader, mut writer) = relay.stream().await;
    let beats = [Carried::new(1).beat(1), Carried::new(2).beat(1)].into();
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
async fn what_a_relay_made_up_was_taken_for_a_lease() {
    let coordinator = Played::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = Carried::with_key(1, Some(key(1)));
    let serves = async {
        let (mut reader, mut stream) = coordinator.stream().await;
        for forger in [None, Some(key(7)), Some(key(1))] {
            let beats = next(&mut reader).await;
            assert!(key(1).proves(&beat_statement(&beats.beats[0]), &beats.beats[0].proof));
            stream = Came { beats, stream }.grants_as(forger.as_ref()).await;
        }
        (reader, stream)
    };
    let asks = async {
        for number in [1, 2] {
            let (answered, leases) = member.asks(&relay, number, false).await;
            assert_eq!((answered.map(drop), leases), (Err(NotGranted::Failed(None)), vec![]), "made up");
        }
        member.asks(&relay, 3, true).await
    };
    let (_open, (answered, leases)) = tokio::join!(serves, asks);
    assert!(answered.is_ok());
    assert_eq!(leases, [1_001]);
}

/// What brings a node to this version, as a coordinator encodes it.
fn encoded_news(version: u64) -> bytes::Bytes {
    let (complete, newest) = (Version::new(version), Version::new(version));
    let (deltas, coordinators) = (Vec::new(), Vec::new());
    News { deltas, nodes: None, tables: None, complete, newest, coordinators }
        .with_encoded(Vec::new(), bytes::Bytes::new())
}

/// Answers the first heartbeat of a batch, and brings it one of these news.
fn answer_with(
    beats: &Beats,
    news: Vec<bytes::Bytes>,
    place: usize,
    key: Option<&BeatKey>,
    forger: Option<&BeatKey>,
) -> Judged {
    let beat = &beats.beats[0];
    let granted = Granted { lease_ms: 1_000 + beat.node.get(), withdrawn: vec![] };
    let mut answer = BeatAnswer::new(beat.node, beat.incarnation, beat.number, Ok(granted));
    if let (Some(key), Some(forger)) = (key, forger) {
        answer.proof = key.prove(&answer_statement(&answer, &NOW));
        let proof = forger.prove(&news_statement(beat.node, beat.incarnation, &BeatKey::digest(&news[place])));
        answer.news = Some(NewsFor { place, proof });
    } else {
        answer.news = Some(NewsFor { place, proof: bytes::Bytes::new() });
    }
    Judged { news, ..Judged::new(vec![answer], NOW) }
}

#[tokio::test]
async fn what_a_relay_brings_of_tables_is_for_the_member_that_the_answer_names() {
    let coordinator = Played::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = Carried::new(1);
    let serves = async {
        let (mut reader, stream) = coordinator.stream().await;
        let beats = next(&mut reader).await;
        let judged = answer_with(&beats, vec![encoded_news(7), encoded_news(9)], 1, None, None);
        (Came { beats, stream }.says(Ok(judged)).await, reader)
    };
    let (_open, (answered, leases)) = tokio::join!(serves, member.asks(&relay, 1, true));
    assert!(answered.is_ok() && leases == [1_001]);
    assert_eq!(*member.news.lock().unwrap(), [Ok(Version::new(9))]);
}

#[tokio::test]
async fn tables_that_a_relay_made_up_were_taken_in() {
    let coordinator = Played::start().await;
    let relay = Relay::start(&[&coordinator]).await;
    let mut member = Carried::with_key(1, Some(key(1)));
    let serves = async {
        let (mut reader, mut stream) = coordinator.stream().await;
        for (version, forger) in [(7, key(7)), (8, key(1))] {
            let beats = next(&mut reader).await;
            let judged = answer_with(&beats, vec![encoded_news(version)], 0, Some(&key(1)), Some(&forger));
            stream = Came { beats, stream }.says(Ok(judged)).await;
        }
        // Proven are others than those that come.
        let beats = next(&mut reader).await;
        let mut judged = answer_with(&beats, vec![encoded_news(9)], 0, Some(&key(1)), Some(&key(1)));
        judged.news = vec![encoded_news(10)];
        (Came { beats, stream }.says(Ok(judged)).await, reader)
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
