//! One stream of heartbeats, to one coordinator. It holds one heartbeat at most that has not left: the newest.

use archon_frames::{FrameError, StreamKind, connect};
use archon_proto::v1;
use archon_security::{Expected, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// A heartbeat that is to leave.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) frame: Arc<v1::Beats>,
    /// Nobody waits for its answer after this: it does not leave any more, for an old sign of life is none.
    pub(super) until: Instant,
}

/// What a stream has to say.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) address: String,
    /// The stream's number.
    pub(super) stream: u64,
    /// Answers; or why the stream has ended.
    pub(super) what: Result<v1::BeatAnswers, FrameError>,
}

/// One stream, as its task has it.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) transport: Transport,
    pub(super) address: String,
    /// Its number.
    pub(super) stream: u64,
    pub(super) newest: watch::Receiver<Option<Waiting>>,
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
    async fn say(&self, what: Result<v1::BeatAnswers, FrameError>) -> bool {
        let said = Said { address: self.address.clone(), stream: self.stream, what };
        self.said.send(said).await.is_ok()
    }

    async fn carry(&mut self) -> Result<(), FrameError> {
        let stalled = self.stalled;
        let (mut reader, mut writer) = connect(
            &self.transport,
            &self.address,
            &Expected::Coordinators,
            StreamKind::Beats,
            MESSAGE_BYTES_MAX,
            CONNECT_TIMEOUT,
        )
        .await?;
        // Since when an answer is owed.
        let mut owed: Option<Instant> = None;
        loop {
            tokio::select! {
                changed = self.newest.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let now = Instant::now();
                    let waiting = self.newest.borrow_and_update().clone();
                    if let Some(Waiting { frame, .. }) = waiting.filter(|waiting| now < waiting.until) {
                        owed.get_or_insert(now);
                        writer.push(&*frame);
                        writer.flush_within(stalled, stalled).await?;
                    }
                }
                answers = reader.next::<v1::BeatAnswers>() => {
                    owed = None;
                    if !self.say(Ok(answers?)).await {
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
