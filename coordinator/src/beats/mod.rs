//! Heartbeats, from their streams to their answers: each one is a lease, given only after a quorum round that began
//! after it arrived (PROTOCOL rules 13 to 16 and 54 to 56). `core` makes the decisions.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the queue from streams to the round |
//! | `gathering` | shared rounds, each judged in one pass |
//! | `member_streams` | one stream of each member |
//! | `stream` | one stream |

mod gathering;
mod member_streams;
mod stream;

pub(crate) use gathering::run;
pub(crate) use member_streams::MemberStreams;
pub(crate) use stream::serve;

use archon_proto::convert::members::beats::{BEATS_MAX, BeatAnswers, Beats, HeartbeatAnswers};
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of frames that wait for a round.
const BATCHES_MAX: usize = 16_384;
/// Maximum number of heartbeats that wait for a round, from all sources: twice the number sent per interval by as many
/// members as a coordinator accepts connections.
const WAITING_MAX: usize = 131_072;

/// The heartbeats of one frame, until they are answered.
pub(crate) struct Batch {
    beats: Beats,
    /// A relay carries them among members with certificates: each heartbeat and each answer is proven.
    proven: bool,
    /// Time of arrival.
    came: Instant,
    /// Channel of their stream for the answer, with room for it.
    answers: mpsc::Sender<BeatAnswers>,
    /// Their permits among the waiting ones.
    _place: OwnedSemaphorePermit,
}

impl Batch {
    fn answer(self, outcome: Result<HeartbeatAnswers, ErrorDetail>) {
        // The stream may have ended.
        let _ = self.answers.try_send(BeatAnswers::new(self.beats.batch, outcome));
    }
}

/// Queue of heartbeats from streams to a term.
#[derive(Clone)]
pub(crate) struct BeatQueue {
    batches: mpsc::Sender<Batch>,
    places: Arc<Semaphore>,
}

/// Receiver of the queue.
pub(crate) struct BatchReceiver(mpsc::Receiver<Batch>);

/// Creates an empty queue.
pub(crate) fn queue() -> (BeatQueue, BatchReceiver) {
    let (batches, waiting) = mpsc::channel(BATCHES_MAX);
    (BeatQueue { batches, places: Arc::new(Semaphore::new(WAITING_MAX)) }, BatchReceiver(waiting))
}

impl BeatQueue {
    /// Queues heartbeats to be answered over `answers`, which must have room.
    ///
    /// # Errors
    /// `Overloaded` if too many wait; `NoQuorum` if the term has ended.
    fn put(&self, beats: Beats, proven: bool, answers: mpsc::Sender<BeatAnswers>) -> Result<(), ErrorDetail> {
        let count = u32::try_from(beats.beats.len().min(BEATS_MAX)).unwrap_or(u32::MAX);
        let member_stream = Arc::clone(&self.places).try_acquire_many_owned(count);
        let member_stream = member_stream.map_err(|_| overloaded())?;
        let batch = Batch { beats, proven, came: Instant::now(), answers, _place: member_stream };
        self.batches.try_send(batch).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => overloaded(),
            mpsc::error::TrySendError::Closed(_) => {
                ErrorDetail::new(ErrorKind::NoQuorum, "this coordinator no longer leads").with_retry_after_ms(20)
            }
        })
    }
}

fn overloaded() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Overloaded, "too many heartbeats wait for a quorum round").with_retry_after_ms(50)
}
