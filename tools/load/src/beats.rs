//! A member's stream of heartbeats, driven one by one: for measurements, and for tests that inspect each answer.

use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, connect};
use archon_proto::convert::members::beats::{Beat, BeatAnswers, Beats, LeaseGrant};
use archon_proto::v1;
use archon_security::{ExpectedPeer, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ClusterId, ErrorDetail, ErrorKind};
use std::time::Duration;

/// Time-out of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream of heartbeats to one coordinator or relay.
#[derive(Debug)]
pub struct BeatStream {
    cluster: ClusterId,
    reader: FrameReader,
    writer: FrameWriter,
    next_departure_ms: Option<u64>,
}

impl BeatStream {
    /// Connects to a coordinator or a relay, for members of `cluster`.
    ///
    /// # Errors
    /// [`FrameError::Connect`].
    pub async fn connect(address: &str, cluster: ClusterId) -> Result<Self, FrameError> {
        let (reader, writer) = connect(
            &Transport::plaintext(true),
            address,
            &ExpectedPeer::Coordinators,
            StreamKind::Beats,
            MESSAGE_BYTES_MAX,
            CONNECT_TIMEOUT,
        )
        .await?;
        Ok(Self { cluster, reader, writer, next_departure_ms: None })
    }

    /// Returns the time of the relay's next batch, in milliseconds after the last answer, if a relay brought that
    /// answer.
    pub const fn next_departure_ms(&self) -> Option<u64> {
        self.next_departure_ms
    }

    /// Sends a heartbeat and waits for its answer; answers to earlier ones are skipped.
    ///
    /// # Errors
    /// The reason why nothing is granted. `DeadlineExceeded`: there was no answer within `timeout`; the stream remains
    /// usable. After `Unreachable` it is not.
    pub async fn beat(&mut self, beat: Beat, timeout: Duration) -> Result<LeaseGrant, ErrorDetail> {
        let number = beat.number;
        let frame = Beats { cluster: self.cluster, batch: number, beats: vec![beat], relay: None };
        self.writer.push(&v1::Beats::from(frame));
        let late = |_| ErrorDetail::new(ErrorKind::DeadlineExceeded, "no answer to a heartbeat in time");
        tokio::time::timeout(timeout, self.answer(number)).await.map_err(late)?
    }

    async fn answer(&mut self, number: u64) -> Result<LeaseGrant, ErrorDetail> {
        self.writer.flush().await.map_err(FrameError::into_detail)?;
        loop {
            let answers = self.reader.next::<v1::BeatAnswers>().await.map_err(FrameError::into_detail)?;
            let BeatAnswers { batch, outcome, .. } = BeatAnswers::try_from(answers)?;
            match outcome {
                Err(detail) if batch == number => return Err(detail),
                Err(_) => {}
                Ok(judged) => {
                    self.next_departure_ms = judged.next_departure_ms;
                    if let Some(answer) = judged.answers.into_iter().find(|answer| answer.number == number) {
                        return answer.outcome;
                    }
                }
            }
        }
    }
}
