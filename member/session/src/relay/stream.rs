//! Stream of one member at a relay: heartbeats come in, answers go out.

use crate::clock::Clock;
use archon_frames::{FrameError, FrameReader, FrameWriter, end_stream};
use archon_proto::convert::members::beats::{BeatAnswers, Beats};
use archon_proto::v1;
use archon_types::{ErrorDetail, ErrorKind, Millis, NodeId};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Answers that wait on a stream; further ones are dropped if the member does not read them in time.
const ANSWERS_MAX: usize = 8;
/// Maximum silence of a stream: a carried member sends several heartbeats per second.
const SILENCE: Duration = Duration::from_secs(10);
/// Maximum time for which a member may read none of its answers.
const STALLED: Duration = Duration::from_secs(1);

/// Input from the streams of members.
#[derive(Debug)]
pub(super) enum Input {
    /// Heartbeats.
    Carry(MemberBeats),
    /// The stream with this number has ended.
    Ended(u64),
}

/// Heartbeats of one member.
#[derive(Debug)]
pub(super) struct MemberBeats {
    /// Number of the stream.
    pub(super) stream: u64,
    pub(super) beats: Beats,
    /// Channel for answers.
    pub(super) answers: mpsc::Sender<BeatAnswers>,
    /// Arrival time.
    pub(super) came: Millis,
}

/// Serves a stream until it ends or `stop`.
pub(super) async fn serve(
    number: u64,
    inputs: &mpsc::Sender<Input>,
    clock: &dyn Clock,
    mut reader: FrameReader,
    mut writer: FrameWriter,
    check: &(dyn Fn(NodeId) -> Result<(), ErrorDetail> + Sync),
    stop: &CancellationToken,
) {
    let ended = carry(number, inputs, clock, &mut reader, &mut writer, check, stop).await;
    let _ = inputs.send(Input::Ended(number)).await;
    end_stream(ended, writer).await;
}

async fn carry(
    number: u64,
    inputs: &mpsc::Sender<Input>,
    clock: &dyn Clock,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    check: &(dyn Fn(NodeId) -> Result<(), ErrorDetail> + Sync),
    stop: &CancellationToken,
) -> Result<(), FrameError> {
    let (answers, mut answered) = mpsc::channel(ANSWERS_MAX);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            beats = reader.next::<v1::Beats>() => {
                heard = Instant::now();
                let beats = Beats::try_from(beats?).map_err(|error| FrameError::Refused(error.into()))?;
                check_own(&beats, check).map_err(FrameError::Refused)?;
                let carry = MemberBeats { stream: number, beats, answers: answers.clone(), came: clock.now() };
                if inputs.send(Input::Carry(carry)).await.is_err() {
                    return Ok(());
                }
            }
            Some(answer) = answered.recv() => {
                writer.push(&v1::BeatAnswers::from(answer));
                writer.flush_within(STALLED, STALLED).await?;
            }
            () = sleep_until(heard + SILENCE) => return Err(FrameError::Silent(SILENCE)),
            () = stop.cancelled() => {
                let why = "this node is stopping; its members turn to another relay";
                return Err(FrameError::Refused(ErrorDetail::new(ErrorKind::ShuttingDown, why)));
            }
        }
    }
}

/// Rejects frames other than a member's own heartbeat: relays carry only heartbeats that come from the members
/// themselves.
fn check_own(beats: &Beats, check: &(dyn Fn(NodeId) -> Result<(), ErrorDetail> + Sync)) -> Result<(), ErrorDetail> {
    if let ([beat], None) = (&beats.beats[..], beats.relay) {
        return check(beat.node);
    }
    let why =
        "a node carries the heartbeats of members that send their own, one in a frame; a relay talks to coordinators";
    Err(ErrorDetail::new(ErrorKind::InvalidArgument, why))
}
