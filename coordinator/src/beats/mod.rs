//! Heartbeats, from the streams on which they come to their answers: each one a lease, given only after a quorum round that began
//! after it arrived (PROTOCOL rules 13 to 16 and 54 to 56). What follows from each is decided in `core`.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | what is on its way from a stream to the round |
//! | `gathering` | what came on all streams shares a round, and is judged in one pass |
//! | `member_streams` | one stream of each member |
//! | `stream` | one stream |

mod gathering;
mod member_streams;
mod stream;

pub(crate) use gathering::run;
pub(crate) use member_streams::MemberStreams;
pub(crate) use stream::serve;

use archon_proto::convert::beats::{BEATS_MAX, BeatAnswers, Beats, Judged};
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Frames that may wait for a round.
const BATCHES_MAX: usize = 16_384;
/// Heartbeats that may wait for a round, however they came: twice what members send in an interval where there are as many as a
/// coordinator takes connections.
const WAITING_MAX: usize = 131_072;

/// The heartbeats of one frame, until they are answered.
pub(crate) struct Batch {
    beats: Beats,
    /// A relay carries them among members that say who they are: what each says, and what it is told, is proven.
    proven: bool,
    /// When they came.
    came: Instant,
    /// Where their stream waits for the answer, with room for it.
    answers: mpsc::Sender<BeatAnswers>,
    /// Their place among those that wait.
    _place: OwnedSemaphorePermit,
}

impl Batch {
    fn answer(self, outcome: Result<Judged, ErrorDetail>) {
        // The stream may have ended.
        let _ = self.answers.try_send(BeatAnswers::new(self.beats.batch, outcome));
    }
}

/// Where streams leave heartbeats for a term.
#[derive(Clone)]
pub(crate) struct BeatQueue {
    batches: mpsc::Sender<Batch>,
    places: Arc<Semaphore>,
}

/// Where a term finds them.
pub(crate) struct Waiting(mpsc::Receiver<Batch>);

/// A queue that is empty.
pub(crate) fn queue() -> (BeatQueue, Waiting) {
    let (batches, waiting) = mpsc::channel(BATCHES_MAX);
    (BeatQueue { batches, places: Arc::new(Semaphore::new(WAITING_MAX)) }, Waiting(waiting))
}

impl BeatQueue {
    /// Has heartbeats answered over `answers`, which must have room.
    ///
    /// # Errors
    /// `Overloaded` if too many wait; `NoQuorum` if the term is over.
    fn put(&self, beats: Beats, proven: bool, answers: mpsc::Sender<BeatAnswers>) -> Result<(), ErrorDetail> {
        let count = u32::try_from(beats.beats.len().min(BEATS_MAX)).unwrap_or(u32::MAX);
        let member_stream = Arc::clone(&self.places).try_acquire_many_owned(count);
        let member_stream = member_stream.map_err(|_| overloaded())?;
        let batch = Batch { beats, proven, came: Instant::now(), answers, _place: member_stream };
        self.batches.try_send(batch).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => overloaded(),
            mpsc::error::TrySendError::Closed(_) => {
                ErrorDetail::new(ErrorKind::NoQuorum, "this coordinator does not lead any more").with_retry_after_ms(20)
            }
        })
    }
}

fn overloaded() -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Overloaded, "too many heartbeats wait for a quorum round").with_retry_after_ms(50)
}
