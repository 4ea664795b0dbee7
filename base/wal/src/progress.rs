//! Counters for a watchdog that detects an unresponsive disk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counters of the writer since the log was opened; they never decrease, except for `outstanding_since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of records written into segments, including headers and padding; without zero-filling and block parts
    /// that a direct write repeats.
    pub bytes: u64,
    /// Batches made durable.
    pub batches: u64,
    /// Completed durable writes of segment files, in one call or as a write and a sync.
    pub fsyncs: u64,
    /// Bytes of old records rewritten at the end of the log to free segments.
    pub relocated: u64,
    /// Start of the write or sync in progress; `None` while the writer waits for work.
    pub outstanding_since: Option<Instant>,
}

/// Receives the duration of each durable write.
type SyncObserver = Box<dyn Fn(Duration) + Send + Sync>;

pub(crate) struct Counters {
    opened: Instant,
    bytes: AtomicU64,
    batches: AtomicU64,
    fsyncs: AtomicU64,
    relocated: AtomicU64,
    /// Nanoseconds after `opened`, plus one; zero for none.
    outstanding: AtomicU64,
    observer: OnceLock<SyncObserver>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            opened: Instant::now(),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            fsyncs: AtomicU64::new(0),
            relocated: AtomicU64::new(0),
            outstanding: AtomicU64::new(0),
            observer: OnceLock::new(),
        }
    }

    /// Sets the observer of durable writes; returns false if there is one already.
    pub(crate) fn observe(&self, observer: SyncObserver) -> bool {
        self.observer.set(observer).is_ok()
    }

    pub(crate) fn begin(&self) {
        let nanos = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX - 1);
        self.outstanding.store(nanos + 1, Ordering::Release);
    }

    pub(crate) fn end(&self, bytes: usize, batches: u64) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.batches.fetch_add(batches, Ordering::Relaxed);
        self.fsyncs.fetch_add(1, Ordering::Relaxed);
        let begun = self.outstanding.swap(0, Ordering::AcqRel);
        if let (Some(observer), Some(begun)) = (self.observer.get(), begun.checked_sub(1)) {
            observer(self.opened.elapsed().saturating_sub(Duration::from_nanos(begun)));
        }
    }

    pub(crate) fn relocated(&self, bytes: usize) {
        self.relocated.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Progress {
        let outstanding = self.outstanding.load(Ordering::Acquire);
        Progress {
            bytes: self.bytes.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            fsyncs: self.fsyncs.load(Ordering::Relaxed),
            relocated: self.relocated.load(Ordering::Relaxed),
            outstanding_since: outstanding.checked_sub(1).map(|nanos| self.opened + Duration::from_nanos(nanos)),
        }
    }
}
