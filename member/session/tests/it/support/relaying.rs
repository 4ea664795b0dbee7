//! Coordinator, relay and members for tests of relays.

use super::beating::TestMember;
use super::{FakeListener, SOON};
use archon_frames::{FrameReader, FrameWriter, StreamKind};
use archon_member::{HeartbeatPace, Rows};
use archon_proto::convert::members::beat_proofs::answer_statement;
use archon_proto::convert::members::beats::{
    Beat, BeatAnswer, BeatAnswers, Beats, ClusterNow, HeartbeatAnswers, LeaseGrant,
};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_security::{BeatKey, Transport};
use archon_session::{BootClock, Coordinators, RelayStreams};
use archon_types::{ClusterId, ErrorDetail, FencingProof, Incarnation, LeaseTiming, NodeId, RelayAddress, Version};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub const LIFE: Incarnation = Incarnation::new(3);
pub const NOW: ClusterNow =
    ClusterNow { replication_timeout_ms: 900, protocol: 2, term: 5, relays: 2, door_every_ms: 0 };

pub fn cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u128(1))
}

/// One stream at a simulated coordinator.
pub struct SimulatedStream {
    reader: FrameReader,
    stream: FrameWriter,
}

impl SimulatedStream {
    /// Accepts the next stream.
    pub async fn begin(coordinator: &FakeListener) -> Self {
        let (reader, stream) = coordinator.stream().await;
        Self { reader, stream }
    }

    /// Returns the next batch.
    pub async fn hears(&mut self) -> Beats {
        let beats: v1::Beats = timeout(SOON, self.reader.next()).await.expect("a batch").unwrap();
        beats.try_into().unwrap()
    }

    /// Answers a batch.
    pub async fn says(&mut self, beats: &Beats, outcome: Result<HeartbeatAnswers, ErrorDetail>) {
        self.stream.push(&v1::BeatAnswers::from(BeatAnswers::new(beats.batch, outcome)));
        self.stream.flush().await.unwrap();
    }

    /// Reads a batch and answers it with `judge`.
    pub async fn answers(&mut self, judge: impl FnOnce(&Beats) -> HeartbeatAnswers) -> Beats {
        let beats = self.hears().await;
        self.says(&beats, Ok(judge(&beats))).await;
        beats
    }

    /// Accepts a stream and answers its first batch with `judge`.
    pub async fn once(coordinator: &FakeListener, judge: impl FnOnce(&Beats) -> HeartbeatAnswers) -> Self {
        let mut serving = Self::begin(coordinator).await;
        serving.answers(judge).await;
        serving
    }
}

/// Grants a lease for each heartbeat.
pub fn granted(beats: &Beats) -> HeartbeatAnswers {
    granted_as(beats, None)
}

/// Does the same, with proofs by `key` if there is one.
pub fn granted_as(beats: &Beats, key: Option<&BeatKey>) -> HeartbeatAnswers {
    let granted = |beat: &Beat| {
        let Beat { node, incarnation, number, .. } = *beat;
        // The duration identifies the member.
        let outcome = Ok(LeaseGrant { lease_ms: 1_000 + node.get(), withdrawn: vec![] });
        let mut answer = BeatAnswer::new(node, incarnation, number, outcome);
        if let Some(key) = key {
            answer.proof = key.prove(&answer_statement(&answer, &NOW));
        }
        answer
    };
    HeartbeatAnswers::new(beats.beats.iter().map(granted).collect(), NOW)
}

/// Fenced incarnations that the relay's node knows of.
#[derive(Default)]
pub struct FencedIncarnations {
    over: Mutex<Vec<FencingProof>>,
    version: watch::Sender<Version>,
}

impl FencedIncarnations {
    pub fn ends(&self, over: FencingProof) {
        self.over.lock().unwrap().push(over);
        self.version.send_replace(over.version);
    }
}

impl Rows for FencedIncarnations {
    fn members_max(&self) -> usize {
        100
    }

    fn over(&self, node: NodeId, incarnation: Incarnation) -> Option<FencingProof> {
        let over = self.over.lock().unwrap();
        over.iter().find(|over| (over.node, over.incarnation) == (node, incarnation)).copied()
    }
}

/// A relay with its own port and the coordinators that it knows. Dropping it stops it.
pub struct Relay {
    pub address: RelayAddress,
    pub told: Arc<FencedIncarnations>,
    pub stop: CancellationToken,
}

impl Relay {
    pub async fn start(coordinators: &[&FakeListener]) -> Self {
        let played = FakeListener::start().await;
        let address = played.address.clone();
        let node = NodeId::new(9);
        let (streams, stop, told) =
            (RelayStreams::new(), CancellationToken::new(), Arc::new(FencedIncarnations::default()));
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
    pub async fn stream(&self) -> (FrameReader, FrameWriter) {
        let (transport, expected) = (Transport::default(), archon_security::ExpectedPeer::Servers);
        let (address, kind) = (&self.address.address, StreamKind::Beats);
        archon_frames::connect(&transport, address, &expected, kind, 1 << 20, SOON).await.unwrap()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns a member that sends a heartbeat to the relay every `heartbeat_ms`, and knows no coordinator.
pub fn carried<'a>(
    node: u64,
    relay: &Relay,
    heartbeat_ms: u64,
    key: Option<BeatKey>,
    nowhere: &'a Coordinators,
) -> TestMember<'a> {
    TestMember {
        coordinators: nowhere,
        member: Member { cluster: cluster(), node: NodeId::new(node), incarnation: LIFE },
        relays: vec![relay.address.clone()],
        key,
        pace: HeartbeatPace {
            heartbeat_ms,
            relay_ms: heartbeat_ms,
            answer_ms: 150,
            pause_max_ms: 20,
            spread_ms: 0,
            distant_ms: heartbeat_ms,
        },
        now: NOW,
    }
}

/// Returns no coordinators.
pub fn nowhere() -> Coordinators {
    Coordinators::new(Vec::new(), Transport::default(), Vec::new)
}
