//! Zero-filled files kept ready, so that the writer never waits for one to be filled.
//!
//! A helper thread makes them. The last one is a reserve that only urgent batches may use.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::disk::{Disk, DiskFile};
use crate::error::WalError;
use crate::segment::spare_name;

/// How long the helper rests after it could not make a file.
const RETRY_AFTER: Duration = Duration::from_millis(250);
const RESERVE: usize = 1;
static CHUNK: [u8; 128 * 1024] = [0; 128 * 1024];

#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
}

#[derive(Debug)]
pub(crate) struct SparePool {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    keep: usize,
    state: Mutex<State>,
    changed: Condvar,
    read_only: AtomicBool,
    stop: AtomicBool,
}

#[derive(Debug)]
struct State {
    ready: VecDeque<Spare>,
    next_id: u64,
    failed: Option<(io::ErrorKind, String)>,
}

impl SparePool {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        spare_segments: usize,
        ready: VecDeque<Spare>,
        next_id: u64,
    ) -> SparePool {
        SparePool {
            disk,
            segment_bytes,
            keep: RESERVE + spare_segments,
            state: Mutex::new(State { ready, next_id, failed: None }),
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

    /// Bytes of the files kept ready.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().ready.len() as u64 * self.segment_bytes
    }

    /// Takes a file, waiting for one that is being made. The reserve is for urgent ones.
    pub(crate) fn take(&self, urgent: bool) -> Result<Spare, WalError> {
        let mut state = self.state.lock();
        loop {
            let held_back = if urgent { 0 } else { RESERVE };
            if state.ready.len() > held_back {
                let spare = state.ready.pop_front();
                if state.ready.is_empty() && state.failed.is_some() {
                    self.set_read_only();
                }
                self.changed.notify_all();
                if let Some(spare) = spare {
                    return Ok(spare);
                }
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(WalError::Closed);
            }
            if let Some((kind, reason)) = &state.failed {
                let error = self.failure(*kind, reason, self.segment_bytes);
                self.set_read_only();
                return Err(error);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Makes a file of an unusual size at once, for a batch or snapshot that fits no other.
    pub(crate) fn make_large(&self, bytes: u64) -> Result<Spare, WalError> {
        let name = self.next_name();
        match self.fill(&name, bytes) {
            Ok(file) => Ok(Spare { name, file }),
            // Only this batch is too much; that is no reason to refuse smaller ones.
            Err(error) => Err(self.failure(error.kind(), &error.to_string(), bytes)),
        }
    }

    /// A name for a file that is about to become spare.
    pub(crate) fn next_name(&self) -> String {
        let mut state = self.state.lock();
        state.next_id += 1;
        spare_name(state.next_id)
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.state.lock().ready.len() < self.keep
    }

    pub(crate) fn give(&self, spare: Spare) {
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
        let stopped = || self.stop.load(Ordering::Acquire);
        while !stopped() {
            let mut state = self.state.lock();
            if state.failed.is_some() && !stopped() {
                self.changed.wait_for(&mut state, RETRY_AFTER);
            }
            while state.ready.len() >= self.keep && !stopped() {
                self.changed.wait(&mut state);
            }
            drop(state);
            if stopped() {
                return;
            }
            let name = self.next_name();
            match self.fill(&name, self.segment_bytes) {
                Ok(file) => self.give(Spare { name, file }),
                Err(_) if stopped() => return,
                Err(error) => self.fail(&error),
            }
        }
    }

    fn fail(&self, error: &io::Error) {
        let mut state = self.state.lock();
        if state.failed.is_none() && !self.disk.powered_off() {
            tracing::warn!(%error, bytes = self.segment_bytes, "cannot make a spare log segment");
        }
        state.failed = Some((error.kind(), error.to_string()));
        if state.ready.is_empty() {
            self.set_read_only();
        }
        drop(state);
        self.changed.notify_all();
    }

    fn set_read_only(&self) {
        if !self.read_only.swap(true, Ordering::AcqRel) && !self.disk.powered_off() {
            tracing::error!("the log is read-only: no space for another segment");
        }
    }

    fn failure(&self, kind: io::ErrorKind, reason: &str, bytes: u64) -> WalError {
        match kind {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WalError::NoSpace { bytes },
            kind => WalError::Io {
                action: "create a segment in",
                path: "the log directory".to_owned(),
                source: io::Error::new(kind, reason.to_owned()),
            },
        }
    }

    /// Real zeros, not a reservation: a later write then changes no file metadata and its sync
    /// costs a fraction.
    fn fill(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(name)?;
        let filled = self.write_zeros(&*file, bytes);
        if filled.is_err() && !self.disk.powered_off() {
            // Half a file would keep what little space there is.
            if let Err(error) = self.disk.remove(name) {
                tracing::warn!(%error, name, "cannot remove an unfinished log segment");
            }
        }
        filled.map(|()| file)
    }

    fn write_zeros(&self, file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
        let mut at = 0;
        while at < bytes {
            if self.stop.load(Ordering::Acquire) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let chunk = CHUNK.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            file.write_at(at, &CHUNK[..chunk])?;
            at += chunk as u64;
        }
        file.sync()
    }
}
