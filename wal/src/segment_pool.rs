//! Files kept ready, so that the writer never waits for one to be filled with zeros or to be removed.
//!
//! A helper thread makes them, and takes back the segments that nothing needs any more: under load a file is used again and
//! again. The last one is a reserve that only urgent batches may use.

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

/// How long the helper rests after it could not make a file.
const RETRY_AFTER: Duration = Duration::from_millis(250);
const SURPLUS_AFTER: Duration = Duration::from_secs(60);
/// Files that only urgent batches may use.
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
    /// Files made ready, the reserve included.
    made_ready: usize,
    /// Most files kept.
    kept_max: usize,
    /// After so long without need of one, one of those beyond what is made ready is removed.
    surplus_after: Duration,
    state: Mutex<State>,
    changed: Condvar,
    read_only: AtomicBool,
    stop: AtomicBool,
}

#[derive(Debug)]
struct State {
    ready: VecDeque<Spare>,
    /// Segments to be taken back, oldest first.
    retired: VecDeque<(u64, SegmentEntry)>,
    /// One more is being taken back now.
    retiring: bool,
    /// None is kept beyond those made ready.
    shedding: bool,
    /// How many callers wait for a file.
    waiting: usize,
    next_id: u64,
    failed: Option<(io::ErrorKind, String)>,
}

impl State {
    /// Whether a file may come that need not be made.
    fn expects(&self) -> bool {
        self.retiring || !self.retired.is_empty()
    }
}

/// What the helper does next.
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

    /// True while only urgent batches are let through.
    pub(crate) fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Why an ordinary batch is refused now, if it is.
    pub(crate) fn refusal(&self) -> Option<WalError> {
        if !self.read_only() {
            return None;
        }
        let state = self.state.lock();
        state.failed.as_ref().map(|(kind, reason)| failure(*kind, reason, self.segment_bytes))
    }

    /// Bytes of the files kept ready, and of those that wait to be taken back.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        let retired: u64 = state.retired.iter().map(|(_, segment)| segment.size).sum();
        state.ready.len() as u64 * self.segment_bytes + retired
    }

    /// Takes a file, waiting for one that is being made. The reserve is for urgent ones.
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
            // Ends the rest of whoever fills a file.
            self.changed.notify_all();
            self.changed.wait(&mut state);
            state.waiting -= 1;
        }
    }

    /// Makes a file of an unusual size at once, for a batch or snapshot that fits no other.
    pub(crate) fn make_large(&self, bytes: u64) -> Result<Spare, ActivateError> {
        let name = self.next_name();
        match self.fill(&name, bytes, FillPace::Unthrottled) {
            Ok(file) => Ok(Spare { name, file }),
            Err(FillError::Stopped) => Err(ActivateError::Refused(WalError::Closed)),
            // Only this batch is too much; that is no reason to refuse smaller ones.
            Err(FillError::Refused(error)) => {
                // It may find space when it comes again.
                self.shed();
                Err(ActivateError::Refused(failure(error.kind(), &error.to_string(), bytes)))
            }
            Err(FillError::Failed(action, error)) => Err(ActivateError::Fatal(action, error)),
        }
    }

    /// A name for a file that is about to become spare.
    fn next_name(&self) -> String {
        let mut state = self.state.lock();
        state.next_id += 1;
        spare_name(state.next_id)
    }

    /// Has the helper remove the files beyond those that are made ready.
    pub(crate) fn shed(&self) {
        let mut state = self.state.lock();
        if state.ready.len() > self.made_ready {
            state.shedding = true;
            self.changed.notify_all();
        }
    }

    /// Has the helper take back segments that nothing needs any more, oldest first.
    pub(crate) fn retire_later(&self, unneeded: impl IntoIterator<Item = (u64, SegmentEntry)>) {
        self.state.lock().retired.extend(unneeded);
        self.changed.notify_all();
    }

    /// Takes a segment back: it becomes a spare one, or is removed when it has an unusual size, when there are enough, or
    /// when a reader still has it open.
    ///
    /// # Errors
    /// Those of the file system. No younger segment may go then: the log would have a gap.
    pub(crate) fn retire(&self, generation: u64, segment: SegmentEntry) -> io::Result<()> {
        let name = segment_name(generation);
        let unread = Arc::strong_count(&segment.file) == 1;
        let recycle = segment.size == self.segment_bytes && unread && self.state.lock().ready.len() < self.kept_max;
        if recycle {
            let spare = Spare { name: self.next_name(), file: segment.file };
            self.disk.rename(&name, &spare.name)?;
            // Before the file is used again and before a younger segment goes.
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

    /// The helper thread.
    pub(crate) fn run(&self) {
        while let Some(task) = self.next_task() {
            match task {
                Task::Retire(generation, segment) => {
                    if let Err(error) = self.retire(generation, segment) {
                        if powered_off(&*self.disk) {
                            return self.stop();
                        }
                        // After a failed sync nobody knows which names the directory holds.
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

    /// Waits until there is something to do; `None` is the end.
    fn next_task(&self) -> Option<Task> {
        let mut state = self.state.lock();
        let mut rested = false;
        loop {
            // What is still to be taken back then, the next start finds.
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

    /// Where no file could be made: from now on only urgent batches are let through.
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
