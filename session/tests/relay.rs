//! Heartbeats that a node carries for others, between members and a coordinator that the test plays.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use archon_frames::{FrameReader, FrameWriter, StreamKind};
use archon_member::{LeaseAnswer, Taken};
use archon_proto::convert::beats::{Beat, BeatAnswer, BeatAnswers, Beats, ClusterNow, Granted, Judged};
use archon_proto::convert::session::Member;
use archon_proto::v1;
use archon_security::Transport;
use archon_session::{
    Answered, BeatStreams, BootClock, Coordinators, Heard, NotGranted, Recipient, RelayAddress, RelayStreams,
};
use archon_types::{ClusterId, ErrorDetail, ErrorKind, Incarnation, NodeId, PushKey, Version};
use support::{Played, SOON};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const LIFE: Incarnation = Incarnation::new(3);
const NOW: ClusterNow = ClusterNow { replication_timeout_ms: 900, protocol: 2, term: 5, relays: 2 };
const HEARTBEAT_MS: u64 = 200;

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
        self.stream.push(&v1::BeatAnswers::from(BeatAnswers { batch: self.beats.batch, outcome }));
        self.stream.flush().await.unwrap();
        self.stream
    }

    async fn grants(self) -> FrameWriter {
        let granted = |beat: &Beat| {
            let Beat { node, incarnation, number, .. } = *beat;
            // By the lease it is seen whose answer it is.
            let outcome = Ok(Granted { lease_ms: 1_000 + node.get(), withdrawn: vec![] });
            BeatAnswer { node, incarnation, number, outcome }
        };
        let answers = self.beats.beats.iter().map(granted).collect();
        self.says(Ok(Judged { answers, now: NOW, next_departure_ms: None })).await
    }
}

/// A relay on a port of its own, and the coordinators that it knows. It ends with this.
struct Relay {
    address: RelayAddress,
    stop: CancellationToken,
}

impl Relay {
    async fn start(coordinators: &[&Played]) -> Self {
        let played = Played::start().await;
        let address = played.address.clone();
        let node = NodeId::new(9);
        let (streams, stop) = (RelayStreams::new(), CancellationToken::new());
        let addresses = coordinators.iter().map(|played| played.address.clone()).collect();
        tokio::spawn({
            let (streams, stop) = (streams.clone(), stop.clone());
            async move {
                let coordinators = Coordinators::new(addresses, Transport::default(), Vec::new);
                let member = Member { cluster: cluster(), node, incarnation: LIFE };
                let carries = streams.carry(&coordinators, &BootClock, member, HEARTBEAT_MS, || 100);
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
                    tokio::spawn(async move { streams.serve(&BootClock, reader, writer, &stop).await });
                }
            }
        });
        Self { address: RelayAddress { node, name: "relay".to_owned(), address }, stop }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A member, and the leases that it took in.
struct Carried {
    streams: BeatStreams,
    heard: Heard,
    node: NodeId,
}

impl Carried {
    fn new(node: u64) -> Self {
        let node = NodeId::new(node);
        let member = Member { cluster: cluster(), node, incarnation: LIFE };
        let (streams, heard) = BeatStreams::new(member, Transport::default(), SOON);
        Self { streams, heard, node }
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
        tokio::select! {
            asked = asks => asked,
            never = self.streams.listen(&mut self.heard, take) => match never {},
        }
    }
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
        assert!(departure_ms <= HEARTBEAT_MS, "{departure_ms}");
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
    let (mut reader, mut writer) = archon_frames::connect(
        &Transport::default(),
        &relay.address.address,
        &archon_security::Expected::Servers,
        StreamKind::Beats,
        1 << 20,
        SOON,
    )
    .await
    .unwrap();
    let beats = [Carried::new(1).beat(1), Carried::new(2).beat(1)].into();
    writer.push(&v1::Beats::from(Beats { cluster: cluster(), batch: 1, beats, relay: None }));
    writer.flush().await.unwrap();
    let answer = timeout(SOON, reader.next::<v1::BeatAnswers>()).await.expect("an end");
    let Err(archon_frames::FrameError::Refused(detail)) = answer else { panic!("{answer:?}") };
    assert!(detail.kind == ErrorKind::InvalidArgument && detail.message.contains("one in a frame"), "{detail}");
}
