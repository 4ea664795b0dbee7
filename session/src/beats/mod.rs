//! The heartbeats of one life on their way to coordinators and back.
//!
//! | Module | |
//! |---|---|
//! | `mod` | who waits for which answer |
//! | `stream` | one stream, to one coordinator |

mod stream;

use self::stream::{Carrier, Said, Waiting};
use crate::coordinators::NotGranted;
use archon_frames::FrameError;
use archon_member::{LeaseAnswer, Taken};
use archon_proto::convert::beats::{Beat, BeatAnswer, BeatAnswers, Beats, ClusterNow, Granted, Judged};
use archon_proto::convert::session::Member;
use archon_security::Transport;
use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

/// Streams at once; a cluster has fewer coordinators.
const STREAMS_MAX: usize = 32;
/// What streams said and nobody has looked at yet; a stream waits when it is full.
const SAID_MAX: usize = 64;
/// How long a stream may owe an answer, at least, before it counts as broken and is made anew.
const STALLED_MIN: Duration = Duration::from_secs(1);

/// The streams of one life to coordinators, one to each that was asked and whose word may still matter. They end with this.
#[derive(Debug)]
pub struct BeatStreams {
    member: Member,
    transport: Transport,
    /// How long the answer to a heartbeat is waited for.
    deadline: Duration,
    open: Mutex<Open>,
    /// Heartbeats whose answer somebody waits for, by number.
    asked: Mutex<BTreeMap<u64, Asked>>,
    said: mpsc::Sender<Said>,
}

/// What arrives on the streams of a life.
#[derive(Debug)]
pub struct Heard(mpsc::Receiver<Said>);

#[derive(Debug, Default)]
struct Open {
    streams: BTreeMap<String, Stream>,
    /// Streams so far.
    count: u64,
}

/// A stream's end that its task listens to; the task ends when it is dropped.
#[derive(Debug)]
struct Stream {
    number: u64,
    newest: watch::Sender<Option<Waiting>>,
}

#[derive(Debug)]
struct Asked {
    address: String,
    outcome: oneshot::Sender<Result<Taken, NotGranted>>,
}

impl BeatStreams {
    /// None yet, for the life of `member`, which waits for each answer for `deadline`. What arrives is for [`listen`](Self::listen).
    pub fn new(member: Member, transport: Transport, deadline: Duration) -> (Self, Heard) {
        let (said, heard) = mpsc::channel(SAID_MAX);
        let (open, asked) = (Mutex::default(), Mutex::default());
        (Self { member, transport, deadline, open, asked, said }, Heard(heard))
    }

    /// Sends a heartbeat to one coordinator and waits for its answer, which [`listen`](Self::listen) takes in.
    ///
    /// # Errors
    /// Nothing is granted in time, and why. An answer that comes later still counts, if no later heartbeat's did.
    pub async fn beat(&self, address: &str, beat: Beat) -> Result<Taken, NotGranted> {
        let (number, until) = (beat.number, Instant::now() + self.deadline);
        let (outcome, answered) = oneshot::channel();
        self.asked.lock().insert(number, Asked { address: address.to_owned(), outcome });
        let _forgotten = Forgets { streams: self, number };
        if let Err(detail) = self.send(address, beat, until) {
            tracing::debug!(%detail, address, "no heartbeat goes there");
            return Err(NotGranted::Failed(None));
        }
        match timeout_at(until, answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => Err(NotGranted::Failed(None)),
        }
    }

    /// Gives the heartbeat to the stream to this coordinator, which sends the newest that it has.
    fn send(&self, address: &str, beat: Beat, until: Instant) -> Result<(), ErrorDetail> {
        self.transport.check(address)?;
        let batch = beat.number;
        let frame = Beats { cluster: self.member.cluster, batch, beats: vec![beat] };
        let waiting = Waiting { frame: Arc::new(frame.into()), until };
        let mut open = self.open.lock();
        if let Some(stream) = open.streams.get(address) {
            stream.newest.send_replace(Some(waiting));
            return Ok(());
        }
        if open.streams.len() >= STREAMS_MAX {
            open.streams.clear();
        }
        open.count += 1;
        let (number, (newest, heard)) = (open.count, watch::channel(None));
        newest.send_replace(Some(waiting));
        let stalled = STALLED_MIN.max(2 * self.deadline);
        let (address, said) = (address.to_owned(), self.said.clone());
        let transport = self.transport.clone();
        let carrier = Carrier { transport, address: address.clone(), stream: number, newest: heard, stalled, said };
        tokio::spawn(carrier.run());
        open.streams.insert(address, Stream { number, newest });
        Ok(())
    }

    /// Nobody else than this coordinator is asked from now on, as long as it answers.
    pub(crate) fn keep_only(&self, address: &str) {
        self.open.lock().streams.retain(|other, _| other == address);
    }

    /// Takes in what coordinators say, also to heartbeats that nobody waits for any more: each lease goes to `take`, with what
    /// the answer says of the cluster.
    pub async fn listen(&self, heard: &mut Heard, take: impl Fn(LeaseAnswer, ClusterNow) -> Taken) -> Infallible {
        loop {
            // The sender is ours.
            let Some(Said { address, stream, what }) = heard.0.recv().await else { std::future::pending().await };
            let answers = what.and_then(|wire| {
                BeatAnswers::try_from(wire).map_err(|error| FrameError::Unreadable(error.to_string()))
            });
            match answers {
                Ok(BeatAnswers { outcome: Ok(Judged { answers, now }), .. }) => {
                    for answer in answers {
                        self.answered(answer, now, &take);
                    }
                }
                Ok(BeatAnswers { batch, outcome: Err(detail) }) => self.settle(batch, Err(not_granted(detail))),
                Err(error) => self.ended(&address, stream, error),
            }
        }
    }

    fn answered(&self, answer: BeatAnswer, now: ClusterNow, take: impl Fn(LeaseAnswer, ClusterNow) -> Taken) {
        let BeatAnswer { node, incarnation, number, outcome } = answer;
        let outcome = match outcome {
            Ok(Granted { lease_ms, withdrawn }) => {
                let lease = LeaseAnswer { node, incarnation, number, lease_ms, withdrawn };
                match take(lease, now) {
                    Taken::Foreign => {
                        tracing::warn!(number, %node, %incarnation, "discarded an answer to a heartbeat that was not sent, or long ago");
                        return;
                    }
                    taken => Ok(taken),
                }
            }
            Err(_) if (node, incarnation) != (self.member.node, self.member.incarnation) => return,
            Err(detail) => Err(not_granted(detail)),
        };
        self.settle(number, outcome);
    }

    /// Tells whoever waits for the answer to a heartbeat, if anybody does.
    fn settle(&self, number: u64, outcome: Result<Taken, NotGranted>) {
        if let Some(asked) = self.asked.lock().remove(&number) {
            // Whoever waits no more has its reasons.
            let _ = asked.outcome.send(outcome);
        }
    }

    /// A stream has ended: what was asked on it is not answered any more.
    fn ended(&self, address: &str, number: u64, error: FrameError) {
        match &error {
            FrameError::Unreadable(_) => tracing::warn!(%error, address, "the answers to heartbeats cannot be read"),
            _ => tracing::debug!(%error, address, "a stream of heartbeats ended"),
        }
        let mut open = self.open.lock();
        if open.streams.get(address).is_none_or(|stream| stream.number != number) {
            return;
        }
        open.streams.remove(address);
        drop(open);
        let outcome = match error {
            FrameError::Refused(detail) => not_granted(detail),
            _ => NotGranted::Failed(None),
        };
        let over: Vec<u64> = {
            let asked = self.asked.lock();
            asked.iter().filter(|(_, asked)| asked.address == address).map(|(number, _)| *number).collect()
        };
        for number in over {
            self.settle(number, Err(outcome.clone()));
        }
    }
}

/// Forgets a heartbeat that nobody waits for any more.
struct Forgets<'a> {
    streams: &'a BeatStreams,
    number: u64,
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.streams.asked.lock().remove(&self.number);
    }
}

fn not_granted(detail: ErrorDetail) -> NotGranted {
    match detail.kind {
        ErrorKind::StaleIncarnation => NotGranted::Stale,
        _ => NotGranted::Failed(detail.leader),
    }
}
