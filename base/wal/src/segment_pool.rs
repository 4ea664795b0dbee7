//! Pool of prepared files, so that the writer never waits for one to be zero-filled or removed.
//!
//! A helper thread prepares files and recycles unneeded segments: under load files are reused all the time. The last
//! file is a reserve for urgent batches.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::config::WalConfig;
use crate::disk::{Disk, DiskFile, powered_off};
use crate::error::WalError;
use crate::index::SegmentEntry;
use crate::segment::{ActivateError, segment_name, spare_name};
use crate::shortage::failure;
use fill::{FillError, FillPace};

/// Delay after a failure to create a file.
const RETRY_AFTER: Duration = Duration::from_millis(250);
const SURPLUS_AFTER: Duration = Duration::from_secs(60);
/// Files reserved for urgent batches.
pub(crate) const RESERVE: usize = 1;

#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
}

#[derive(Debug)]
pub(crate) struct SegmentPool {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    /// Files to keep prepared, including the reserve.
    made_ready: usize,
    /// Maximum number of kept files.
    kept_max: usize,
    /// Idle time after which one surplus file is removed.
    surplus_after: Duration,
    state: Mutex<State>,
    changed: Condvar,
    read_only: AtomicBool,
    stop: AtomicBool,
}

#[derive(Debug)]
struct State {
    ready: VecDeque<Spare>,
    /// Segments to recycle, oldest first.
    retired: VecDeque<(u64, SegmentEntry)>,
    /// Another segment is being recycled now.
    retiring: bool,
    /// Surplus files are being removed.
    shedding: bool,
    /// Number of callers that wait for a file.
    waiting: usize,
    next_id: u64,
    failed: Option<(io::ErrorKind, String)>,
}

impl State {
    /// Returns whether a recycled file may arrive.
    fn expects(&self) -> bool {
        self.retiring || !self.retired.is_empty()
    }
}

/// Next task of the helper.
enum Task {
    Retire(u64, SegmentEntry),
    Make,
    Remove(Spare),
}

impl SegmentPool {
    pub(crate) fn new(disk: Arc<dyn Disk>, config: &WalConfig, ready: VecDeque<Spare>, next_id: u64) -> SegmentPool {
        let state = State {
            ready,
            retired: VecDeque::new(),
            retiring: false,
            shedding: false,
            waiting: 0,
            next_id,
            failed: None,
        };
        SegmentPool {
            disk,
            segment_bytes: config.segment_bytes,
            made_ready: RESERVE + config.spare_segments,
            kept_max: config.spares_max(),
            surplus_after: SURPLUS_AFTER,
            state: Mutex::new(state),
            changed: Condvar::new(),
            read_only: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Returns true while only urgent batches are accepted.
    pub(crate) fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Returns the reason why ordinary batches are refused now, if so.
    pub(crate) fn refusal(&self) -> Option<WalError> {
        if !self.read_only() {
            return None;
        }
        let state = self.state.lock();
        state.failed.as_ref().map(|(kind, reason)| failure(*kind, reason, self.segment_bytes))
    }

    /// Returns the bytes of prepared files and of segments to recycle.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        let retired: u64 = state.retired.iter().map(|(_, segment)| segment.size).sum();
        state.ready.len() as u64 * self.segment_bytes + retired
    }

    /// Takes a file; waits for one in preparation. The reserve is for urgent batches.
    pub(crate) fn take(&self, urgent: bool) -> Result<Spare, WalError> {
        let mut state = self.state.lock();
        loop {
            let held_back = if urgent { 0 } else { RESERVE };
            if state.ready.len() > held_back {
                let spare = state.ready.pop_front();
                if state.ready.is_empty() {
                    self.set_read_only(&state);
                }
                self.changed.notify_all();
                if let Some(spare) = spare {
                    return Ok(spare);
                }
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(WalError::Closed);
            }
            if let Some((kind, reason)) = &state.failed
                && !state.expects()
            {
                let error = failure(*kind, reason, self.segment_bytes);
                self.set_read_only(&state);
                return Err(error);
            }
            state.waiting += 1;
            // Wakes the helper if it rests while it fills a file.
            self.changed.notify_all();
            self.changed.wait(&mut state);
            state.waiting -= 1;
        }
    }

    /// Creates a file of unusual size immediately, for a batch or snapshot that fits no other.
    pub(crate) fn make_large(&self, bytes: u64) -> Result<Spare, ActivateError> {
        let name = self.next_name();
        match self.fill(&name, bytes, FillPace::Unthrottled) {
            Ok(file) => Ok(Spare { name, file }),
            Err(FillError::Stopped) => Err(ActivateError::Refused(WalError::Closed)),
            // Only this batch is too large; smaller ones need not be refused.
            Err(FillError::Refused(error)) => {
                // A retry may find space.
                self.shed();
                Err(ActivateError::Refused(failure(error.kind(), &error.to_string(), bytes)))
            }
            Err(FillError::Failed(action, error)) => Err(ActivateError::Fatal(action, error)),
        }
    }

    /// Returns the name of a future spare file.
    fn next_name(&self) -> String {
        let mut state = self.state.lock();
        state.next_id += 1;
        spare_name(state.next_id)
    }

    /// Makes the helper remove surplus files.
    pub(crate) fn shed(&self) {
        let mut state = self.state.lock();
        if state.ready.len() > self.made_ready {
            state.shedding = true;
            self.changed.notify_all();
        }
    }

    /// Makes the helper recycle unneeded segments, oldest first.
    pub(crate) fn retire_later(&self, unneeded: impl IntoIterator<Item = (u64, SegmentEntry)>) {
        self.state.lock().retired.extend(unneeded);
        self.changed.notify_all();
    }

    /// Recycles a segment: it becomes a spare, or is removed if it has an unusual size, there are enough spares, or a
    /// reader has it open.
    ///
    /// # Errors
    /// Errors of the file system. No newer segment may be removed then: the log would have a gap.
    pub(crate) fn retire(&self, generation: u64, segment: SegmentEntry) -> io::Result<()> {
        let name = segment_name(generation);
        let unread = Arc::strong_count(&segment.file) == 1;
        let recycle = segment.size == self.segment_bytes && unread && self.state.lock().ready.len() < self.kept_max;
        if recycle {
            let spare = Spare { name: self.next_name(), file: segment.file };
            self.disk.rename(&name, &spare.name)?;
            // Required before the file is reused and before a newer segment is removed.
            self.disk.sync_directory()?;
            self.give(spare);
        } else {
            self.disk.remove(&name)?;
            self.disk.sync_directory()?;
        }
        Ok(())
    }

    fn give(&self, spare: Spare) {
        let mut state = self.state.lock();
        state.ready.push_back(spare);
        if state.ready.len() > RESERVE {
            state.failed = None;
            if self.read_only.swap(false, Ordering::AcqRel) {
                tracing::info!("the log has space again and takes writes");
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        let state = self.state.lock();
        self.stop.store(true, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Runs the helper thread.
    pub(crate) fn run(&self) {
        while let Some(task) = self.next_task() {
            match task {
                Task::Retire(generation, segment) => {
                    if let Err(error) = self.retire(generation, segment) {
                        if powered_off(&*self.disk) {
                            return self.stop();
                        }
                        // After a failed sync the names in the directory are unknown.
                        tracing::error!(%error, generation, "a log segment cannot be taken back: ending the process");
                        std::process::abort();
                    }
                    self.state.lock().retiring = false;
                    self.changed.notify_all();
                }
                Task::Make => {
                    let name = self.next_name();
                    match self.fill(&name, self.segment_bytes, FillPace::Throttled) {
                        Ok(file) => self.give(Spare { name, file }),
                        Err(FillError::Stopped) => {}
                        Err(FillError::Refused(_)) if self.stop.load(Ordering::Acquire) => {}
                        Err(FillError::Refused(error)) => self.fail(&error),
                        Err(FillError::Failed(action, error)) => {
                            tracing::error!(%error, action, "the log failed: ending the process");
                            std::process::abort();
                        }
                    }
                }
                Task::Remove(spare) => {
                    if let Err(error) = self.disk.remove(&spare.name) {
                        tracing::warn!(%error, name = spare.name, "cannot remove a spare log segment");
                    }
                }
            }
        }
    }

    /// Waits for a task; `None` at the end.
    fn next_task(&self) -> Option<Task> {
        let mut state = self.state.lock();
        let mut rested = false;
        loop {
            // The next start finds segments that are not recycled yet.
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            if let Some((generation, segment)) = state.retired.pop_front() {
                state.retiring = true;
                return Some(Task::Retire(generation, segment));
            }
            if state.ready.len() < self.made_ready {
                if state.failed.is_none() || rested {
                    return Some(Task::Make);
                }
                rested = self.changed.wait_for(&mut state, RETRY_AFTER).timed_out();
            } else if state.ready.len() > self.made_ready {
                if state.shedding || self.changed.wait_for(&mut state, self.surplus_after).timed_out() {
                    return state.ready.pop_back().map(Task::Remove);
                }
            } else {
                state.shedding = false;
                self.changed.wait(&mut state);
            }
        }
    }

    fn fail(&self, error: &io::Error) {
        let mut state = self.state.lock();
        if state.failed.is_none() && !powered_off(&*self.disk) {
            tracing::warn!(%error, bytes = self.segment_bytes, "cannot make a spare log segment");
        }
        state.failed = Some((error.kind(), error.to_string()));
        if state.ready.is_empty() {
            self.set_read_only(&state);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Sets the log read-only after a file could not be created: only urgent batches are accepted.
    fn set_read_only(&self, state: &State) {
        let Some((_, error)) = &state.failed else { return };
        if !self.read_only.swap(true, Ordering::AcqRel) && !powered_off(&*self.disk) {
            let bytes = self.segment_bytes;
            tracing::error!(error, bytes, "the log is read-only: another segment cannot be made");
        }
    }
}

mod fill;
mod space;
#[cfg(test)]
#[path = "segment_pool_tests.rs"]
mod tests;
