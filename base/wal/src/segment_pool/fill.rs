//! Creation of zero-filled files, and classification of failures.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SegmentPool;
use crate::disk::{DiskFile, powered_off};
use crate::shortage::{is_broken, is_full};

/// A file is filled and synced in pieces of this size with a pause after each: a disk that takes the whole file at
/// once delays the writer's syncs by milliseconds.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Maximum pause after a piece; otherwise as long as the piece took.
const REST_MAX: Duration = Duration::from_millis(20);
static CHUNK: [u8; 128 * 1024] = [0; 128 * 1024];

/// Pace of filling; a throttled fill pauses for other users of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillPace {
    Throttled,
    Unthrottled,
}

/// Reason why a file was not created.
#[derive(Debug)]
pub(super) enum FillError {
    /// The pool is stopped.
    Stopped,
    /// Refused for lack of space, a descriptor or a permission, or without power: the content of the disk is still
    /// known.
    Refused(io::Error),
    /// The disk failed during the operation: its content is unknown, so the log must end.
    Failed(&'static str, io::Error),
}

/// Steps of creating a file.
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

    /// Classifies the failure of this step on a disk with power.
    fn failed(self, error: io::Error) -> FillError {
        let refused = is_full(error.kind()) || (self == Step::Create && !is_broken(&error));
        if refused { FillError::Refused(error) } else { FillError::Failed(self.action(), error) }
    }
}

impl SegmentPool {
    /// Fills a file with real zeros instead of a reservation: later writes then change no metadata, and their sync is
    /// much cheaper.
    pub(super) fn fill(&self, name: &str, bytes: u64, pace: FillPace) -> Result<Arc<dyn DiskFile>, FillError> {
        // Otherwise each attempt would take the little remaining space from others before it fails.
        if self.disk.free_bytes().is_some_and(|free| free < bytes) {
            return Err(FillError::Refused(io::ErrorKind::StorageFull.into()));
        }
        let file = self.disk.create(name).map_err(|error| self.judged(Step::Create, error))?;
        let filled = self.write_zeros(&*file, bytes, pace);
        // The remains on a failed disk are left to the next start.
        if matches!(filled, Err(FillError::Stopped | FillError::Refused(_))) && !powered_off(&*self.disk) {
            // A partial file would keep the little remaining space.
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

    /// Pauses for other users of the disk, unless a caller waits for a file.
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
    fn disk_failure_is_fatal_and_lack_of_space_is_not() {
        let is_fatal = |step: Step, errno: Errno| matches!(step.failed(errno.into()), FillError::Failed(..));
        for step in [Step::Create, Step::Write, Step::Sync] {
            assert!(is_fatal(step, Errno::IO), "{step:?}");
            for errno in [Errno::NOSPC, Errno::DQUOT] {
                assert!(!is_fatal(step, errno), "{step:?}: {errno}");
            }
            // Nothing was written yet when a creation is refused; a failed write or sync leaves the content unknown.
            for errno in [Errno::MFILE, Errno::ACCESS, Errno::ROFS] {
                assert_eq!(is_fatal(step, errno), step != Step::Create, "{step:?}: {errno}");
            }
        }
    }
}
