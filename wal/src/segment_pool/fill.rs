//! How a file is made, and what a failure of that means.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SegmentPool;
use crate::disk::{DiskFile, powered_off};
use crate::shortage::{is_broken, is_full};

/// A file is filled and synced in pieces of so many bytes with a rest after each: a disk that takes all of it at once lets
/// the writer's syncs wait for milliseconds.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Longest rest after a piece; otherwise as long as the piece took.
const REST_MAX: Duration = Duration::from_millis(20);
static CHUNK: [u8; 128 * 1024] = [0; 128 * 1024];

/// Whether filling a file lets the disk to others now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillPace {
    Throttled,
    Unthrottled,
}

/// Why a file was not made.
#[derive(Debug)]
pub(super) enum FillError {
    /// The pool is stopped.
    Stopped,
    /// For lack of space, of a descriptor or of a right, or without power: what the disk holds is as known as before.
    Refused(io::Error),
    /// The disk failed while this was done: nobody knows what it holds, so the log must end.
    Failed(&'static str, io::Error),
}

/// What is done to make a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Sync,
}

impl Step {
    fn action(self) -> &'static str {
        match self {
            Step::Create => "create a spare segment",
            Step::Write => "fill a spare segment",
            Step::Sync => "sync a spare segment",
        }
    }

    /// What it means that this step failed, on a disk that has power.
    fn failed(self, error: io::Error) -> FillError {
        let refused = is_full(error.kind()) || (self == Step::Create && !is_broken(&error));
        if refused { FillError::Refused(error) } else { FillError::Failed(self.action(), error) }
    }
}

impl SegmentPool {
    /// Real zeros, not a reservation: a later write then changes no file metadata and its sync
    /// costs a fraction.
    pub(super) fn fill(&self, name: &str, bytes: u64, pace: FillPace) -> Result<Arc<dyn DiskFile>, FillError> {
        // Otherwise each attempt would take what little space there is from others, until it fails.
        if self.disk.free_bytes().is_some_and(|free| free < bytes) {
            return Err(FillError::Refused(io::ErrorKind::StorageFull.into()));
        }
        let file = self.disk.create(name).map_err(|error| self.judged(Step::Create, error))?;
        let filled = self.write_zeros(&*file, bytes, pace);
        // What a disk that failed holds is left to the next start.
        if matches!(filled, Err(FillError::Stopped | FillError::Refused(_))) && !powered_off(&*self.disk) {
            // Half a file would keep what little space there is.
            if let Err(error) = self.disk.remove(name) {
                tracing::warn!(%error, name, "cannot remove an unfinished log segment");
            }
        }
        filled.map(|()| file)
    }

    fn judged(&self, step: Step, error: io::Error) -> FillError {
        if powered_off(&*self.disk) { FillError::Refused(error) } else { step.failed(error) }
    }

    fn write_zeros(&self, file: &dyn DiskFile, bytes: u64, pace: FillPace) -> Result<(), FillError> {
        let sync = || file.sync().map_err(|error| self.judged(Step::Sync, error));
        let mut at = 0;
        let mut began = Instant::now();
        while at < bytes {
            if self.stop.load(Ordering::Acquire) {
                return Err(FillError::Stopped);
            }
            let chunk = CHUNK.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            file.write_at(at, &CHUNK[..chunk]).map_err(|error| self.judged(Step::Write, error))?;
            at += chunk as u64;
            let rests = pace == FillPace::Throttled && !self.is_waited_for();
            if at < bytes && at.is_multiple_of(PIECE_BYTES) && rests {
                sync()?;
                self.rest(began.elapsed().min(REST_MAX));
                began = Instant::now();
            }
        }
        sync()
    }

    fn is_waited_for(&self) -> bool {
        self.state.lock().waiting > 0
    }

    /// Lets the disk to others for a while, unless somebody waits for a file.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while state.waiting == 0 && !self.stop.load(Ordering::Acquire) {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_disk_that_failed_while_a_file_was_made_was_taken_for_one_without_room() {
        let is_fatal = |step: Step, errno: Errno| matches!(step.failed(errno.into()), FillError::Failed(..));
        for step in [Step::Create, Step::Write, Step::Sync] {
            assert!(is_fatal(step, Errno::IO), "{step:?}");
            for errno in [Errno::NOSPC, Errno::DQUOT] {
                assert!(!is_fatal(step, errno), "{step:?}: {errno}");
            }
            // Nothing was written yet where a file is refused; but whatever fails a write or sync leaves it unknown what was.
            for errno in [Errno::MFILE, Errno::ACCESS, Errno::ROFS] {
                assert_eq!(is_fatal(step, errno), step != Step::Create, "{step:?}: {errno}");
            }
        }
    }
}
