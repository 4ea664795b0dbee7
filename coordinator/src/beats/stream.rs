//! One stream of heartbeats: frames come in, their answers go out in the order in which they are ready.

use super::MemberStreams;
use super::member_streams::{MemberStream, Sender};
use crate::service::{Context, check_member, check_own};
use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, end_stream};
use archon_proto::convert::members::beats::{BeatAnswers, Beats};
use archon_proto::v1;
use archon_security::Caller;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Maximum wait for a leader: a heartbeat that finds none here should try another coordinator at once.
const LEADER_WAIT: Duration = Duration::from_millis(30);
/// Maximum number of frames of one stream that wait for their answers; no further ones are read meanwhile. A member
/// sends another heartbeat if one is not answered in time.
const UNDER_WAY_MAX: usize = 4;
/// Minimum silence after which a stream is closed: a member with rarer heartbeats may be silent for its failure
/// time-out.
const SILENCE_MIN: Duration = Duration::from_secs(10);
/// Maximum time in which a peer accepts none of its answers.
const STALLED: Duration = Duration::from_secs(1);

/// Serves a stream until it ends, or until `serving` does.
pub(crate) async fn serve(
    context: Context,
    member_streams: Arc<MemberStreams>,
    serving: CancellationToken,
    caller: Caller,
    kind: StreamKind,
    reader: FrameReader,
    mut writer: FrameWriter,
) {
    let ended = match kind {
        StreamKind::Beats => Stream::new(context, member_streams, caller, reader).carry(&mut writer, &serving).await,
        StreamKind::Exchange | StreamKind::Replicate => {
            let why = "a coordinator holds no partitions; ask it for the table, and a node for keys";
            Err(FrameError::Refused(ErrorDetail::new(ErrorKind::InvalidArgument, why)))
        }
    };
    end_stream(ended, writer).await;
}

struct Stream {
    context: Context,
    member_streams: Arc<MemberStreams>,
    caller: Caller,
    reader: FrameReader,
    /// Its registration, once its owner is known.
    member_stream: Option<MemberStream>,
    /// Maximum silence.
    timeout: Duration,
}

impl Stream {
    const fn new(context: Context, member_streams: Arc<MemberStreams>, caller: Caller, reader: FrameReader) -> Self {
        Self { context, member_streams, caller, reader, member_stream: None, timeout: SILENCE_MIN }
    }

    async fn carry(mut self, writer: &mut FrameWriter, serving: &CancellationToken) -> Result<(), FrameError> {
        let (answered, mut answers) = mpsc::channel(UNDER_WAY_MAX);
        let mut under_way = 0;
        let mut heard = Instant::now();
        let mut silence = std::pin::pin!(sleep_until(heard + self.timeout));
        let mut stopped = std::pin::pin!(serving.cancelled());
        loop {
            let replaced = async {
                match &self.member_stream {
                    Some(member_stream) => member_stream.replaced.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                beats = self.reader.next::<v1::Beats>(), if under_way < UNDER_WAY_MAX => {
                    heard = Instant::now();
                    let beats = Beats::try_from(beats?).map_err(|error| FrameError::Refused(error.into()))?;
                    under_way += 1;
                    self.take(beats, &answered).await?;
                }
                Some(answer) = answers.recv() => {
                    under_way -= 1;
                    writer.push(&v1::BeatAnswers::from(answer));
                    while let Ok(answer) = answers.try_recv() {
                        under_way -= 1;
                        writer.push(&v1::BeatAnswers::from(answer));
                    }
                    writer.flush_within(STALLED, STALLED).await?;
                }
                () = &mut silence => {
                    let until = heard + self.timeout;
                    if until <= Instant::now() {
                        return Err(FrameError::Silent(self.timeout));
                    }
                    silence.as_mut().reset(until);
                }
                () = replaced => {
                    let detail = ErrorDetail::new(ErrorKind::Unavailable, "this member has begun another stream");
                    return Err(FrameError::Refused(detail));
                }
                () = &mut stopped => {
                    let detail = ErrorDetail::new(ErrorKind::ShuttingDown, "this coordinator is stopping");
                    return Err(FrameError::Refused(detail));
                }
            }
        }
    }

    /// Queues heartbeats to be answered, or answers with the reason why they are not.
    async fn take(&mut self, beats: Beats, answers: &mpsc::Sender<BeatAnswers>) -> Result<(), FrameError> {
        let batch = beats.batch;
        let leader = self.leader().await;
        // Before the owner of the stream is set: a heartbeat in the name of another member would end that one's stream.
        self.check_own(&beats).map_err(FrameError::Refused)?;
        self.know(&beats);
        let put = match leader {
            Ok(queue) => {
                let proven = beats.relay.is_some() && self.caller.identity.is_some();
                queue.put(beats, proven, answers.clone())
            }
            Err(detail) => Err(detail),
        };
        if let Err(detail) = put {
            // There is room: frames are counted.
            let _ = answers.try_send(BeatAnswers::new(batch, Err(detail)));
        }
        Ok(())
    }

    /// Rejects heartbeats sent for another member by a sender that is no relay. Heartbeats behind a relay are proven
    /// one by one.
    fn check_own(&self, beats: &Beats) -> Result<(), ErrorDetail> {
        if self.caller.identity.is_none() {
            return Ok(());
        }
        // Before there is a quorum there are no members, and nothing is granted.
        let Ok(quorum) = self.context.quorum() else { return Ok(()) };
        let check = |state: &_, node| check_own(&self.caller, StreamKind::Beats.word(), state, node);
        quorum.replicated().read(|state| match beats.relay {
            Some((relay, _)) => check(state, relay),
            None => beats.beats.iter().try_for_each(|beat| check(state, beat.node)),
        })
    }

    /// Makes the first member that sends a heartbeat on a stream, or declares itself a relay, its owner, if it is a
    /// member in its present incarnation. Until then frames are small.
    fn know(&mut self, beats: &Beats) {
        if self.member_stream.is_some() {
            return;
        }
        let (Some(first), Ok(quorum)) = (beats.beats.first(), self.context.quorum()) else { return };
        let (sender, node, incarnation) = match beats.relay {
            Some((node, incarnation)) => (Sender::Relay(node), node, incarnation),
            None => (Sender::Member(first.node), first.node, first.incarnation),
        };
        let known = quorum.replicated().read(|state| {
            check_member(Some(&beats.cluster.into()), state).ok()?;
            state.check_sender(node, incarnation).ok()?;
            Some(Duration::from_millis(state.timing_of(node).failure_timeout_ms))
        });
        if let Some(failure_timeout) = known {
            self.member_stream = Some(self.member_streams.enter(sender));
            self.timeout = SILENCE_MIN.max(failure_timeout);
            self.reader.known(MESSAGE_BYTES_MAX);
        }
    }

    async fn leader(&self) -> Result<super::BeatQueue, ErrorDetail> {
        match self.context.leading.session() {
            Some(session) => Ok(session.beats.clone()),
            None => Ok(self.context.leader(LEADER_WAIT).await?.beats.clone()),
        }
    }
}
