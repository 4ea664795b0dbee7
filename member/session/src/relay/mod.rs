//! Relay of heartbeats: streams of members on one side, coordinators on the other. `archon_member::Relay` decides
//! when batches leave and which member gets which answer.
//!
//! | Module | Contents |
//! |---|---|
//! | `mod` | one incarnation of a relay |
//! | `carried` | a carried heartbeat |
//! | `frames` | batches cut into frames |
//! | `stream` | the stream of one member |

mod carried;
mod frames;
mod stream;

use self::carried::CarriedBeat;
use self::stream::{Input, MemberBeats};
use crate::beats::{Backlog, StreamMessage, Streams};
use crate::clock::Clock;
use crate::coordinators::Coordinators;
use archon_frames::{FrameError, FrameReader, FrameWriter};
use archon_member::{BatchRecipients, Relay, RelayEffect, RelayOutcome, ReturnAddress, Rows};
use archon_proto::convert::members::beats::{Beat, BeatAnswers, Beats, HeartbeatAnswers};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_security::ExpectedPeer;
use archon_types::{ErrorDetail, ErrorKind, FencingProof, LeaseTiming, Millis, NodeId, Version};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Capacity for unprocessed input of members; streams wait while it is full.
const INPUTS_MAX: usize = 1_024;
/// Frames that wait on the stream to a coordinator.
const BACKLOG: usize = 64;
/// Maximum age of a batch that is sent: a later heartbeat is of no use to its member.
const WORTH: Duration = Duration::from_millis(150);

/// Counters of a relay; see docs/reference/metrics.md.
#[derive(Debug, Default)]
pub struct RelayCounts {
    /// Heartbeats passed on to coordinators.
    pub beats: AtomicU64,
    /// Batches passed on.
    pub batches: AtomicU64,
    /// Heartbeats refused because the relay was full.
    pub busy: AtomicU64,
    /// Notices to members that no coordinator answers.
    pub no_coordinator: AtomicU64,
    /// Notices to members that their incarnation is fenced.
    pub over: AtomicU64,
    /// Members carried now.
    pub members: AtomicU64,
}

/// Entry point for streams of members; [`carry`](Self::carry) processes them while this process is registered.
#[derive(Clone, Debug)]
pub struct RelayStreams {
    inputs: mpsc::Sender<Input>,
    waiting: Arc<Mutex<mpsc::Receiver<Input>>>,
    streams: Arc<AtomicU64>,
    counts: Arc<RelayCounts>,
}

impl Default for RelayStreams {
    fn default() -> Self {
        Self::new()
    }
}

impl RelayStreams {
    /// Creates a relay that carries no members yet.
    pub fn new() -> Self {
        let (inputs, waiting) = mpsc::channel(INPUTS_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        Self { inputs, waiting, streams: Arc::default(), counts: Arc::default() }
    }

    /// Returns the counters.
    pub fn counts(&self) -> &RelayCounts {
        &self.counts
    }

    /// Serves the stream of one member until it ends or `stop`. `check` verifies the member's number.
    pub async fn serve(
        &self,
        clock: &dyn Clock,
        reader: FrameReader,
        writer: FrameWriter,
        check: &(dyn Fn(NodeId) -> Result<(), ErrorDetail> + Sync),
        stop: &CancellationToken,
    ) {
        let number = self.streams.fetch_add(1, Ordering::Relaxed) + 1;
        stream::serve(number, &self.inputs, clock, reader, writer, check, stop).await;
    }

    /// Relays heartbeats while polled, as this incarnation of the node. `rows` holds its rows of other members;
    /// `changes` announces new ones.
    pub async fn carry(
        &self,
        coordinators: &Coordinators,
        clock: &dyn Clock,
        member: Member,
        timing: LeaseTiming,
        rows: &(dyn Rows + Sync),
        mut changes: watch::Receiver<Version>,
    ) -> Infallible {
        // One incarnation at a time.
        let mut waiting = self.waiting.lock().await;
        let (streams, mut heard) = Streams::new(coordinators.transport().clone(), Backlog::Frames(BACKLOG), WORTH);
        let mut life = RelayIncarnation {
            coordinators,
            clock,
            member,
            rows,
            streams,
            relay: Relay::new(timing, clock.now()),
            members: BTreeMap::new(),
            counts: &self.counts,
        };
        loop {
            let wake = Duration::from_millis(life.relay.wake_at().since(clock.now()).max(1));
            tokio::select! {
                Some(input) = waiting.recv() => life.take(input),
                Some(said) = heard.recv() => life.hear(said),
                Ok(()) = changes.changed() => {
                    let told = life.relay.rows_changed(rows);
                    life.perform(told);
                }
                () = sleep(wake) => {}
            }
            let effects = life.relay.due(clock.now());
            life.perform(effects);
            self.counts.members.store(life.relay.carries() as u64, Ordering::Relaxed);
        }
    }
}

/// One incarnation of a relay.
struct RelayIncarnation<'a> {
    coordinators: &'a Coordinators,
    clock: &'a dyn Clock,
    member: Member,
    rows: &'a (dyn Rows + Sync),
    streams: Streams,
    relay: Relay<CarriedBeat>,
    /// Channels for answers, by stream of a member.
    members: BTreeMap<u64, mpsc::Sender<BeatAnswers>>,
    counts: &'a RelayCounts,
}

impl RelayIncarnation<'_> {
    fn take(&mut self, input: Input) {
        match input {
            Input::Ended(stream) => {
                self.members.remove(&stream);
                self.relay.ended(stream);
            }
            Input::Carry(MemberBeats { stream, beats, answers, came }) => {
                self.members.entry(stream).or_insert(answers);
                let from = ReturnAddress { stream, frame: beats.batch };
                if beats.cluster != self.member.cluster {
                    let why = "these heartbeats are for another cluster";
                    return self.say(from, Err(ErrorDetail::new(ErrorKind::WrongCluster, why)));
                }
                for beat in beats.beats {
                    self.heard(from, beat, came);
                }
            }
        }
    }

    fn heard(&mut self, from: ReturnAddress, beat: Beat, came: Millis) {
        match self.relay.heard(from, CarriedBeat(beat), self.rows, came) {
            RelayOutcome::Leaves | RelayOutcome::Old => {}
            RelayOutcome::Over(over) => self.say_over(from, over),
            RelayOutcome::Waits => self.say_no_coordinator(from),
            RelayOutcome::Busy => {
                self.counts.busy.fetch_add(1, Ordering::Relaxed);
                let why = "this node carries heartbeats for enough members; ask another one";
                self.say(from, Err(ErrorDetail::new(ErrorKind::Overloaded, why)));
            }
        }
    }

    /// Handles a message of a coordinator, or the end of its stream.
    fn hear(&mut self, StreamMessage { address, stream, what, .. }: StreamMessage) {
        let now = self.clock.now();
        let refused = match what {
            Ok(BeatAnswers { batch, outcome: Ok(judged), .. }) => {
                self.coordinators.leads(&address);
                self.streams.keep_only(&address);
                return self.pass_back(batch, judged);
            }
            Ok(BeatAnswers { batch, outcome: Err(detail), .. }) => {
                self.doubt(&address, detail.leader.as_deref());
                self.relay.refused(batch, now)
            }
            Err(error) if self.streams.ended(&address, stream) => {
                tracing::debug!(%error, address, "the stream to a coordinator ended");
                let hint = if let FrameError::Refused(detail) = error { detail.leader } else { None };
                self.doubt(&address, hint.as_deref());
                self.relay.refused(u64::MAX, now)
            }
            Err(_) => return,
        };
        self.perform(refused);
    }

    fn doubt(&self, address: &str, hint: Option<&str>) {
        self.coordinators.doubt(address);
        if let Some(leader) = hint {
            self.coordinators.leads(leader);
        }
    }

    /// Passes each answer to the stream of the member that it names.
    fn pass_back(&mut self, batch: u64, judged: HeartbeatAnswers) {
        let named = judged.answers.iter().map(|answer| (answer.node, answer.incarnation, answer.number));
        let routes = self.relay.answered(batch, named);
        let next_departure_ms = Some(self.relay.next_departure_ms(self.clock.now()));
        for (mut answer, to) in judged.answers.into_iter().zip(routes) {
            if let Some(to) = to {
                // Table updates are passed on unchanged.
                let news =
                    answer.news.as_mut().and_then(|news| judged.news.get(std::mem::take(&mut news.place)).cloned());
                let news = news.into_iter().collect();
                let now = judged.now;
                self.say(to, Ok(HeartbeatAnswers { answers: vec![answer], now, next_departure_ms, news }));
            }
        }
    }

    fn perform(&mut self, effects: Vec<RelayEffect<CarriedBeat>>) {
        for effect in effects {
            match effect {
                RelayEffect::Depart { batch, beats, towards } => self.depart(batch, beats, towards),
                RelayEffect::NoCoordinator(to) => self.say_no_coordinator(to),
                RelayEffect::Over(to, over) => self.say_over(to, over),
            }
        }
    }

    fn depart(&self, batch: u64, beats: Vec<CarriedBeat>, towards: BatchRecipients) {
        let order = self.coordinators.order();
        let count = if towards == BatchRecipients::Leader { 1 } else { order.len() };
        let (until, relay) = (Instant::now() + WORTH, Some((self.member.node, self.member.incarnation)));
        self.counts.beats.fetch_add(beats.len() as u64, Ordering::Relaxed);
        self.counts.batches.fetch_add(1, Ordering::Relaxed);
        for beats in frames::cut(beats.into_iter().map(|CarriedBeat(beat)| beat)) {
            let head = Beats { cluster: self.member.cluster, batch, beats: Vec::new(), relay };
            let frame = Arc::new(v1::Beats { beats, ..head.into() });
            for address in order.iter().take(count) {
                if let Err(detail) = self.streams.send(address, ExpectedPeer::Coordinators, Arc::clone(&frame), until) {
                    tracing::debug!(%detail, address, "no heartbeats go there");
                }
            }
        }
    }

    fn say_no_coordinator(&self, to: ReturnAddress) {
        self.counts.no_coordinator.fetch_add(1, Ordering::Relaxed);
        let why = "no coordinator answers this relay; it keeps the heartbeat for the next leader";
        self.say(to, Err(ErrorDetail::new(ErrorKind::NoQuorum, why)));
    }

    fn say_over(&self, to: ReturnAddress, over: FencingProof) {
        self.counts.over.fetch_add(1, Ordering::Relaxed);
        self.answer(to, BeatAnswers::over(to.frame, over));
    }

    fn say(&self, to: ReturnAddress, outcome: Result<HeartbeatAnswers, ErrorDetail>) {
        self.answer(to, BeatAnswers::new(to.frame, outcome));
    }

    fn answer(&self, to: ReturnAddress, answers: BeatAnswers) {
        if let Some(stream) = self.members.get(&to.stream) {
            // A member that does not read its answers retries, or is gone.
            let _ = stream.try_send(answers);
        }
    }
}
