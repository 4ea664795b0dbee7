//! Liveness checks of this node, on which its heartbeats depend.

use crate::engine::disk_full;
use crate::flusher::FlusherHandle;
use crate::node::config::NodeConfig;
use crate::statistics::load::LoadBoard;
use crate::storage::store;
use archon_session::Clock;
use archon_types::{DiskFull, LogPin, Millis};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One shard thread's sign of life.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Local clock at the beginning of the last turn, plus one; zero before the first.
    turn_at: AtomicU64,
    ended: AtomicBool,
}

impl Pulse {
    /// Notes the beginning of a turn. An idle shard has one at every tick, so a shard without turns for long hangs: in
    /// a turn, or because a connection on its thread does.
    pub(crate) fn begin(&self, now: Millis) {
        self.turn_at.store(now.get().saturating_add(1), Ordering::Release);
    }

    /// Notes the end of the thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    fn stalled(&self, now: Millis, longest_ms: u64) -> bool {
        let at = self.turn_at.load(Ordering::Acquire);
        let long = at != 0 && now.since(Millis::new(at - 1)) > longest_ms;
        long || self.ended.load(Ordering::Acquire)
    }
}

/// All signs of life.
pub(crate) struct Health {
    config: Arc<NodeConfig>,
    clock: Arc<dyn Clock>,
    load: Arc<LoadBoard>,
    pulses: Vec<Arc<Pulse>>,
    wal: archon_wal::Wal,
    flusher: FlusherHandle,
    /// Bytes of log kept by old entries above which they are reported.
    log_pin_bytes: u64,
}

/// Bytes of log kept by old entries above which they are reported: twice the amount that the log leaves in place. On a
/// small disk, half of it.
const LOG_PIN_BYTES: u64 = 1024 * 1024 * 1024;
/// The same while the disk is full.
const LOG_PIN_FULL_BYTES: u64 = 64 * 1024 * 1024;

/// Factor by which the engine may take longer for one write or sync than any step before an acknowledgement: it lags
/// behind the log by design, and a lease must not depend on it.
const ENGINE_TIMEOUT_FACTOR: u64 = 10;

/// A component without progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Stall {
    /// A shard has begun no turn for too long, or its thread has ended.
    #[error("shard {0} makes no progress")]
    Shard(usize),
    /// The disk has not answered a sync for too long.
    #[error("the write-ahead log has waited for the disk for {0} ms")]
    Log(u64),
    /// The engine has been at one write or sync for far too long.
    #[error("the engine has been at one write or sync for {0} ms")]
    Engine(u64),
}

impl Health {
    pub(crate) fn new(
        config: Arc<NodeConfig>,
        clock: Arc<dyn Clock>,
        load: Arc<LoadBoard>,
        pulses: Vec<Arc<Pulse>>,
        wal: archon_wal::Wal,
        flusher: FlusherHandle,
        disk_bytes: u64,
    ) -> Self {
        Self { config, clock, load, pulses, wal, flusher, log_pin_bytes: LOG_PIN_BYTES.min(disk_bytes / 2) }
    }

    /// Returns the shortage of the disk, if the engine or the log accepts nothing new because of it.
    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        self.flusher.disk_full().or_else(|| {
            let is_refused = self.load.is_log_refused(self.clock.now());
            is_refused.then(|| disk_full(&self.config.data_dir, self.config.wal_segment_bytes))
        })
    }

    /// Returns the copy with the oldest entries if these keep much of the log, although old entries are moved forward.
    pub(crate) fn log_pin(&self, is_disk_full: bool) -> Option<LogPin> {
        let much = if is_disk_full { self.log_pin_bytes.min(LOG_PIN_FULL_BYTES) } else { self.log_pin_bytes };
        if self.wal.disk_bytes() < much {
            return None;
        }
        let pinned = self.wal.oldest_pinned().filter(|pinned| pinned.bytes >= much)?;
        let placement = store::placement(*pinned.streams.first()?);
        Some(LogPin { placement, bytes: pinned.bytes })
    }

    /// Finds components without progress for longer than `longest_ms`.
    ///
    /// # Errors
    /// The first [`Stall`] found.
    pub(crate) fn check(&self, longest_ms: u64) -> Result<(), Stall> {
        let now = self.clock.now();
        if let Some(shard) = self.pulses.iter().position(|pulse| pulse.stalled(now, longest_ms)) {
            return Err(Stall::Shard(shard));
        }
        if let Some(since) = self.wal.progress().outstanding_since {
            let waited_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            if waited_ms > longest_ms {
                return Err(Stall::Log(waited_ms));
            }
        }
        let busy_ms = u64::try_from(self.flusher.busy_for().as_millis()).unwrap_or(u64::MAX);
        if busy_ms > longest_ms.saturating_mul(ENGINE_TIMEOUT_FACTOR) {
            return Err(Stall::Engine(busy_ms));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_ended_threads_are_stalls() {
        let pulse = Pulse::default();
        assert!(!pulse.stalled(Millis::new(9_000), 1_000));
        pulse.begin(Millis::new(0));
        assert!(!pulse.stalled(Millis::new(1_000), 1_000));
        assert!(pulse.stalled(Millis::new(1_001), 1_000));
        pulse.begin(Millis::new(8_500));
        assert!(!pulse.stalled(Millis::new(9_000), 1_000));
        pulse.end();
        assert!(pulse.stalled(Millis::new(9_000), 1_000));
    }
}
