//! One stream of heartbeats, to one coordinator or relay.

use archon_frames::{FrameError, StreamKind, connect};
use archon_proto::convert::members::beats::BeatAnswers;
use archon_proto::v1;
use archon_security::{CONNECT_TIMEOUT, ExpectedPeer, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// A heartbeat frame to send.
#[derive(Clone, Debug)]
pub(crate) struct PendingFrame {
    /// Increases with each frame given to one stream.
    pub(super) sequence: u64,
    pub(super) frame: Arc<v1::Beats>,
    /// Deadline of the answer. A later frame is not sent: an old sign of life is none.
    pub(super) until: Instant,
}

/// A message of a stream.
#[derive(Debug)]
pub(crate) struct StreamMessage {
    pub(crate) address: String,
    /// Set if the peer is a relay.
    pub(crate) by_relay: bool,
    /// Number of the stream.
    pub(crate) stream: u64,
    /// Answers, or the error that ended the stream.
    pub(crate) what: Result<BeatAnswers, FrameError>,
}

/// The state of one stream in its task.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) transport: Transport,
    pub(super) address: String,
    /// Expected peer.
    pub(super) expected: ExpectedPeer,
    /// Number of the stream.
    pub(super) stream: u64,
    pub(super) newest: watch::Receiver<Vec<PendingFrame>>,
    /// Maximum age of a pending answer; an older one breaks the stream.
    pub(super) stalled: Duration,
    pub(super) said: mpsc::Sender<StreamMessage>,
}

impl Carrier {
    /// Connects and sends frames until the senders are dropped or the stream ends.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.carry().await {
            self.say(Err(error)).await;
        }
    }

    /// Passes a message on; returns whether the receiver exists.
    async fn say(&self, what: Result<BeatAnswers, FrameError>) -> bool {
        let by_relay = matches!(self.expected, ExpectedPeer::Node(_));
        let said = StreamMessage { address: self.address.clone(), by_relay, stream: self.stream, what };
        self.said.send(said).await.is_ok()
    }

    async fn carry(&mut self) -> Result<(), FrameError> {
        let stalled = self.stalled;
        let (mut reader, mut writer) = connect(
            &self.transport,
            &self.address,
            &self.expected,
            StreamKind::Beats,
            MESSAGE_BYTES_MAX,
            CONNECT_TIMEOUT,
        )
        .await?;
        // Time since which an answer is pending, and the last frame that was sent.
        let mut owed: Option<Instant> = None;
        let mut last = 0;
        loop {
            tokio::select! {
                changed = self.newest.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let now = Instant::now();
                    let waiting = self.newest.borrow_and_update().clone();
                    for PendingFrame { sequence, frame, until } in waiting {
                        if sequence > last && now < until {
                            owed.get_or_insert(now);
                            writer.push(&*frame);
                        }
                        last = last.max(sequence);
                    }
                    writer.flush_within(stalled, stalled).await?;
                }
                answers = reader.next::<v1::BeatAnswers>() => {
                    owed = None;
                    let answers = BeatAnswers::try_from(answers?);
                    let answers = answers.map_err(|error| FrameError::Unreadable(error.to_string()))?;
                    if !self.say(Ok(answers)).await {
                        return Ok(());
                    }
                }
                () = sleep_until(owed.unwrap_or_else(Instant::now) + stalled), if owed.is_some() => {
                    return Err(FrameError::Silent(stalled));
                }
            }
        }
    }
}
