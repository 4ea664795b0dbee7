//! One stream of heartbeats, to one coordinator or relay.

use archon_frames::{FrameError, StreamKind, connect};
use archon_proto::convert::beats::BeatAnswers;
use archon_proto::v1;
use archon_security::{CONNECT_TIMEOUT, Expected, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// A frame of heartbeats that is to leave.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Rises with each frame that is given to one stream.
    pub(super) sequence: u64,
    pub(super) frame: Arc<v1::Beats>,
    /// Nobody waits for its answer after this: it does not leave any more, for an old sign of life is none.
    pub(super) until: Instant,
}

/// What a stream has to say.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) address: String,
    /// A relay serves there.
    pub(crate) by_relay: bool,
    /// The stream's number.
    pub(crate) stream: u64,
    /// Answers; or why the stream has ended.
    pub(crate) what: Result<BeatAnswers, FrameError>,
}

/// One stream, as its task has it.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) transport: Transport,
    pub(super) address: String,
    /// Who is to serve there.
    pub(super) expected: Expected,
    /// Its number.
    pub(super) stream: u64,
    pub(super) newest: watch::Receiver<Vec<Waiting>>,
    /// For how long an answer may be owed before the stream counts as broken.
    pub(super) stalled: Duration,
    pub(super) said: mpsc::Sender<Said>,
}

impl Carrier {
    /// Connects, and sends what waits, until nobody gives it anything any more or the stream ends.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.carry().await {
            self.say(Err(error)).await;
        }
    }

    /// Whether anybody listens.
    async fn say(&self, what: Result<BeatAnswers, FrameError>) -> bool {
        let by_relay = matches!(self.expected, Expected::Node(_));
        let said = Said { address: self.address.clone(), by_relay, stream: self.stream, what };
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
        // Since when an answer is owed, and the last frame that was looked at.
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
                    for Waiting { sequence, frame, until } in waiting {
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
