//! Waits of the flusher for its engine and for the disk.

use super::marks::SetIdle;
use super::writer::Writer;
use super::{DISK_SPACE_INTERVAL, ROOM_INTERVAL};
use crate::engine::{EngineError, is_full};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Writer {
    /// Waits until the disk has space for the engine: meeting a full disk in the middle of a write would break it for
    /// good. Earlier writes are synced at once. Returns whether there is space; if not, the flusher was stopped.
    pub(super) fn await_disk_space(&mut self) -> Result<bool, EngineError> {
        self.await_room()?;
        let Err(lack) = self.engine.check_disk() else { return Ok(true) };
        *self.shared.disk_full.lock() = Some(lack);
        self.shared.is_disk_full.store(true, Ordering::Release);
        let (free_bytes, needed_bytes) = (lack.free_bytes, lack.needed_bytes);
        tracing::error!(free_bytes, needed_bytes, "the disk is full: writes are refused until there is space: {lack}");
        if self.unsynced_since.is_some() {
            // The watchdog of the engine has to notice a disk that does not answer.
            let _busy = SetIdle(Arc::clone(&self.shared));
            self.set_busy();
            self.sync()?;
        }
        // Checked without the lock on the queue: a disk that does not answer must not block shards.
        while let Err(lack) = self.engine.check_disk() {
            *self.shared.disk_full.lock() = Some(lack);
            let mut queue = self.shared.queue.lock();
            if queue.stopping {
                return Ok(false);
            }
            if let Some(error) = queue.read_failure.take() {
                return Err(error);
            }
            self.shared.wake.wait_for(&mut queue, DISK_SPACE_INTERVAL);
        }
        self.shared.is_disk_full.store(false, Ordering::Release);
        *self.shared.disk_full.lock() = None;
        tracing::info!("the disk has space for the engine again");
        Ok(true)
    }

    /// Waits until the engine has room for more rows, or the flusher is stopped. Much work is no sign of a hanging engine,
    /// so the watchdog does not see this wait.
    fn await_room(&self) -> Result<(), EngineError> {
        while !self.engine.has_room()? {
            let mut queue = self.shared.queue.lock();
            if queue.stopping {
                break;
            }
            self.shared.wake.wait_for(&mut queue, ROOM_INTERVAL);
        }
        Ok(())
    }

    /// Waits for space if a shortage made the engine fail; it must then be reopened, and the node is read-only
    /// meanwhile.
    pub(super) fn await_space_after(&self, error: &EngineError) {
        let EngineError::Io { source, .. } = error else { return };
        let is_full = is_full(source.kind());
        let mut probed = self.engine.probe_disk();
        if probed.is_ok() && !is_full {
            return;
        }
        tracing::error!(%error, "the engine met a full disk; it is opened again once there is space");
        self.shared.failed_for_space.store(true, Ordering::Release);
        self.shared.is_disk_full.store(true, Ordering::Release);
        while let Err(lack) = probed {
            *self.shared.disk_full.lock() = Some(lack);
            let mut queue = self.shared.queue.lock();
            if queue.stopping {
                return;
            }
            self.shared.wake.wait_for(&mut queue, DISK_SPACE_INTERVAL);
            drop(queue);
            probed = self.engine.probe_disk();
        }
    }
}
