//! Progress of backup operations.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Progress of a backup, verification or restore; shared with its display.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    entries: AtomicU64,
    pieces: AtomicU64,
    again: AtomicU64,
    /// Time of the last bytes, in milliseconds since `began`.
    came_ms: AtomicU64,
    waits_for: Mutex<Option<String>>,
}

impl Default for Progress {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            began: Instant::now(),
            bytes: zero(),
            bytes_total: zero(),
            entries: zero(),
            pieces: zero(),
            again: zero(),
            came_ms: zero(),
            waits_for: Mutex::default(),
        }
    }
}

impl Progress {
    /// Returns the bytes so far, without those of failed attempts.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the approximate total of bytes; zero if unknown.
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total.load(Ordering::Relaxed)
    }

    /// Returns the entries so far.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns the finished pieces.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }

    /// Returns the number of restarts of pieces.
    pub fn begun_again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    /// Returns a description of the condition that it waits for; `None` if there is none.
    pub fn waiting_for(&self) -> Option<String> {
        self.waits_for.lock().clone()
    }

    #[cfg(feature = "object-store")]
    pub(crate) fn waits_for(&self, what: Option<String>) {
        *self.waits_for.lock() = what;
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Estimates the remaining time from the rate so far; `None` if unknown.
    pub fn left(&self) -> Option<Duration> {
        let (bytes, total) = (self.bytes(), self.bytes_total());
        let rest = total.checked_sub(bytes).filter(|_| bytes > 0)?;
        Some(self.elapsed().mul_f64(rest as f64 / bytes as f64))
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the time since the last bytes.
    pub(crate) fn silence(&self) -> Duration {
        self.elapsed().saturating_sub(Duration::from_millis(self.came_ms.load(Ordering::Relaxed)))
    }

    pub(crate) fn came(&self, bytes: usize, entries: u64) {
        self.came_ms.store(u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }

    pub(crate) fn piece_done(&self) {
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn in_vain(&self, bytes: u64, entries: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.entries.fetch_sub(entries, Ordering::Relaxed);
        self.again.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_estimated_from_progress() {
        let progress = Progress { began: Instant::now() - Duration::from_secs(10), ..Progress::default() };
        assert_eq!(progress.left(), None);
        progress.expect(300);
        assert!(progress.silence() >= Duration::from_secs(10));
        progress.came(100, 1);
        assert!(progress.silence() < Duration::from_secs(10));
        assert_eq!(progress.left().map(|left| left.as_secs()), Some(20));
        progress.came(300, 1);
        assert_eq!(progress.left(), None, "the estimate was too low");
        progress.in_vain(300, 1);
        assert_eq!((progress.bytes(), progress.entries(), progress.begun_again()), (100, 1, 1));
    }
}
