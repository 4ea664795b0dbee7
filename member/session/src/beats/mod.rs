//! Heartbeats of one incarnation, sent to coordinators or relays, and their answers.
//!
//! | Module | Contents |
//! |---|---|
//! | `mod` | pending heartbeats and their answers |
//! | `stream` | one stream, to one address |
//! | `streams` | all open streams |

mod stream;
mod streams;

pub(crate) use self::stream::StreamMessage;
pub(crate) use self::streams::{Backlog, Streams};
use crate::coordinators::BeatFailure;
use archon_frames::FrameError;
use archon_member::{GrantOutcome, LeaseAnswer, RELAY_ANSWER_MS};
use archon_proto::convert::members::beat_proofs::{answer_statement, beat_statement, news_statement};
use archon_proto::convert::members::beats::{
    Beat, BeatAnswer, BeatAnswers, Beats, ClusterNow, HeartbeatAnswers, LeaseGrant, NewsFor,
};
use archon_proto::convert::members::session::Member;
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_security::{BeatKey, ExpectedPeer, Transport};
use archon_types::{ErrorDetail, ErrorKind, FencingProof, RelayAddress};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Heartbeat streams of one incarnation.
#[derive(Debug)]
pub struct BeatStreams {
    member: Member,
    /// Verifies answers that relays bring; set where members authenticate themselves.
    key: Option<BeatKey>,
    /// Time to wait for the answer of a coordinator.
    deadline: Duration,
    streams: Streams,
    /// Pending heartbeats, by number.
    asked: Mutex<BTreeMap<u64, PendingBeat>>,
    /// A coordinator answered that this incarnation is fenced, perhaps after every waiter timed out.
    over: AtomicBool,
}

/// Receiver of the messages that arrive on the streams of an incarnation.
#[derive(Debug)]
pub struct MessageReceiver(mpsc::Receiver<StreamMessage>);

/// Recipient of a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient<'a> {
    /// A coordinator, by its address.
    Coordinator(&'a str),
    /// A relay.
    Relay(&'a RelayAddress),
}

/// Outcome of a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeatOutcome {
    /// Outcome of the answer.
    pub taken: GrantOutcome,
    /// Milliseconds until the relay's next batch leaves, if a relay brought the answer.
    pub next_departure_ms: Option<u64>,
}

#[derive(Debug)]
struct PendingBeat {
    address: String,
    by_relay: bool,
    outcome: oneshot::Sender<Result<BeatOutcome, BeatFailure>>,
}

impl Recipient<'_> {
    fn address(&self) -> &str {
        match self {
            Self::Coordinator(address) => address,
            Self::Relay(relay) => &relay.address,
        }
    }

    fn expected(&self) -> ExpectedPeer {
        match self {
            Self::Coordinator(_) => ExpectedPeer::Coordinators,
            Self::Relay(relay) => ExpectedPeer::Node(relay.name.clone()),
        }
    }
}

impl BeatStreams {
    /// Creates an empty set of streams for the incarnation of `member`, which waits `deadline` for each answer of a
    /// coordinator. If there is a `key` (where members authenticate themselves), answers from relays must be proven
    /// with it. Pass the receiver to [`listen`](Self::listen).
    pub fn new(
        member: Member,
        key: Option<BeatKey>,
        transport: Transport,
        deadline: Duration,
    ) -> (Self, MessageReceiver) {
        let (streams, heard) = Streams::new(transport, Backlog::Newest, deadline);
        (
            Self { member, key, deadline, streams, asked: Mutex::default(), over: AtomicBool::new(false) },
            MessageReceiver(heard),
        )
    }

    /// Sends a heartbeat and waits for its answer, which [`listen`](Self::listen) processes.
    ///
    /// # Errors
    /// The reason why nothing was granted in time. A later answer still counts, unless one to a newer heartbeat was
    /// processed.
    pub async fn beat(&self, to: Recipient<'_>, mut beat: Beat) -> Result<BeatOutcome, BeatFailure> {
        let by_relay = matches!(to, Recipient::Relay(_));
        if let Some(key) = self.key.as_ref().filter(|_| by_relay) {
            beat.proof = key.prove(&beat_statement(&beat));
        }
        let deadline = if by_relay { Duration::from_millis(RELAY_ANSWER_MS) } else { self.deadline };
        let (number, until) = (beat.number, Instant::now() + deadline);
        let (outcome, answered) = oneshot::channel();
        self.asked.lock().insert(number, PendingBeat { address: to.address().to_owned(), by_relay, outcome });
        let _forgotten = PendingGuard { streams: self, number };
        let frame = Beats { cluster: self.member.cluster, batch: number, beats: vec![beat], relay: None };
        if let Err(detail) = self.streams.send(to.address(), to.expected(), Arc::new(frame.into()), until) {
            tracing::debug!(%detail, address = to.address(), "no heartbeat is sent there");
            return Err(BeatFailure::Failed(None));
        }
        match timeout_at(until, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) if self.over.load(Ordering::Relaxed) => Err(BeatFailure::Stale),
            Ok(Err(_)) | Err(_) => Err(BeatFailure::Failed(None)),
        }
    }

    /// Closes the streams to all other addresses, as long as this one answers.
    pub(crate) fn keep_only(&self, address: &str) {
        self.streams.keep_only(address);
    }

    /// Processes incoming messages, including answers after the deadline: leases go to `take`, with the cluster data
    /// of the answer; notices that an incarnation is fenced go to `told_over`, with the dialled address of their
    /// sender, and it returns whether this incarnation is meant; table updates, or the error in them, go to `news`.
    pub async fn listen(
        &self,
        heard: &mut MessageReceiver,
        take: impl Fn(LeaseAnswer, ClusterNow) -> GrantOutcome,
        told_over: impl Fn(FencingProof, &str) -> bool,
        news: impl Fn(Result<TableUpdates, ErrorDetail>),
    ) -> Infallible {
        loop {
            // `self` holds a sender, so the channel stays open.
            let Some(StreamMessage { address, by_relay, stream, what }) = heard.0.recv().await else {
                std::future::pending().await
            };
            match what {
                Ok(BeatAnswers { batch, over: Some(over), .. }) if told_over(over, &address) => {
                    self.settle(batch, Err(BeatFailure::Stale));
                }
                Ok(BeatAnswers {
                    outcome: Ok(HeartbeatAnswers { answers, now, next_departure_ms, news: brought }),
                    ..
                }) => {
                    for mut answer in answers {
                        if by_relay && !self.is_proven(&answer, now) {
                            let number = answer.number;
                            tracing::warn!(
                                number,
                                address,
                                "discarded an answer to a heartbeat: no coordinator gave it to the relay"
                            );
                            continue;
                        }
                        let for_it = answer.news.take();
                        let ours = (answer.node, answer.incarnation) == (self.member.node, self.member.incarnation);
                        self.answered(answer, now, next_departure_ms, &take);
                        if let Some(for_it) = for_it.filter(|_| ours && by_relay) {
                            news(self.read_news(&for_it, &brought));
                        }
                    }
                }
                Ok(BeatAnswers { batch, outcome: Err(detail), .. }) => self.refused(batch, detail),
                Err(error) => self.ended(&address, stream, error),
            }
        }
    }

    /// Returns whether a coordinator made the answer for this incarnation, and not the relay that brought it.
    fn is_proven(&self, answer: &BeatAnswer, now: ClusterNow) -> bool {
        self.key.as_ref().is_none_or(|key| key.proves(&answer_statement(answer, &now), &answer.proof))
    }

    /// Reads table updates, and rejects those that no coordinator made (rule 79).
    fn read_news(&self, for_it: &NewsFor, brought: &[impl AsRef<[u8]>]) -> Result<TableUpdates, ErrorDetail> {
        let Member { node, incarnation, .. } = self.member;
        let bytes = brought.get(for_it.place).map_or(&[][..], AsRef::as_ref);
        let statement = || news_statement(node, incarnation, &BeatKey::digest(bytes));
        if !self.key.as_ref().is_none_or(|key| key.proves(&statement(), &for_it.proof)) {
            let why = "the table update in the answer to a heartbeat is not signed by a coordinator: a relay invented \
                       or changed it";
            return Err(ErrorDetail::new(ErrorKind::Refused, why));
        }
        TableUpdates::read(bytes, incarnation).map_err(ErrorDetail::from)
    }

    fn answered(
        &self,
        answer: BeatAnswer,
        now: ClusterNow,
        next_departure_ms: Option<u64>,
        take: impl Fn(LeaseAnswer, ClusterNow) -> GrantOutcome,
    ) {
        let BeatAnswer { node, incarnation, number, outcome, .. } = answer;
        let outcome = match outcome {
            Ok(LeaseGrant { lease_ms, withdrawn }) => {
                let lease = LeaseAnswer { node, incarnation, number, lease_ms, withdrawn };
                match take(lease, now) {
                    GrantOutcome::Foreign => {
                        tracing::warn!(number, %node, %incarnation, "discarded an answer to a heartbeat that was not \
                                                                     sent, or long ago");
                        return;
                    }
                    taken => Ok(BeatOutcome { taken, next_departure_ms }),
                }
            }
            Err(_) if (node, incarnation) != (self.member.node, self.member.incarnation) => return,
            Err(detail) => Err(beat_failure(detail)),
        };
        if outcome == Err(BeatFailure::Stale) {
            self.over.store(true, Ordering::Relaxed);
        }
        self.settle(number, outcome);
    }

    /// Handles a refusal of a whole frame.
    fn refused(&self, number: u64, detail: ErrorDetail) {
        let by_relay = self.asked.lock().get(&number).is_some_and(|asked| asked.by_relay);
        let why = match detail.kind {
            // The relay keeps the heartbeat and sends it to the next leader.
            ErrorKind::NoQuorum if by_relay => BeatFailure::NoCoordinator,
            // A relay's refusal names no incarnation: only a coordinator's answer to the heartbeat itself, or a
            // fencing notice, ends one.
            _ if by_relay => BeatFailure::Failed(None),
            _ => beat_failure(detail),
        };
        self.settle(number, Err(why));
    }

    /// Passes the outcome to the waiter of a heartbeat, if there is one.
    fn settle(&self, number: u64, outcome: Result<BeatOutcome, BeatFailure>) {
        if let Some(asked) = self.asked.lock().remove(&number) {
            // A waiter that is gone needs no outcome.
            let _ = asked.outcome.send(outcome);
        }
    }

    /// Handles the end of a stream: its pending heartbeats get no answer.
    fn ended(&self, address: &str, number: u64, error: FrameError) {
        match &error {
            FrameError::Unreadable(_) => tracing::warn!(%error, address, "the answers to heartbeats cannot be read"),
            _ => tracing::debug!(%error, address, "a stream of heartbeats ended"),
        }
        if !self.streams.ended(address, number) {
            return;
        }
        let over: Vec<u64> = {
            let asked = self.asked.lock();
            asked.iter().filter(|(_, asked)| asked.address == address).map(|(number, _)| *number).collect()
        };
        for number in over {
            match &error {
                FrameError::Refused(detail) => self.refused(number, detail.clone()),
                _ => self.settle(number, Err(BeatFailure::Failed(None))),
            }
        }
    }
}

/// Removes a pending heartbeat when its waiter is gone.
struct PendingGuard<'a> {
    streams: &'a BeatStreams,
    number: u64,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.streams.asked.lock().remove(&self.number);
    }
}

fn beat_failure(detail: ErrorDetail) -> BeatFailure {
    match detail.kind {
        ErrorKind::StaleIncarnation => BeatFailure::Stale,
        _ => BeatFailure::Failed(detail.leader),
    }
}
