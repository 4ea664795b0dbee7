//! Marks of the flusher's thread that are set when a turn or the thread ends, also by a panic.

use super::FlusherState;
use std::sync::Arc;

/// Marks the engine as idle, however the turn ended.
pub(super) struct SetIdle(pub(super) Arc<FlusherState>);

impl Drop for SetIdle {
    fn drop(&mut self) {
        *self.0.busy_since.lock() = None;
    }
}

/// Notifies waiting threads that the thread has ended, and the node if it panicked.
pub(super) struct EndNotifier {
    pub(super) shared: Arc<FlusherState>,
    pub(super) on_panic: Option<Box<dyn FnOnce() + Send>>,
}

impl Drop for EndNotifier {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the flusher has panicked; the node stops");
            if let Some(on_panic) = self.on_panic.take() {
                on_panic();
            }
        }
        let mut queue = self.shared.queue.lock();
        queue.ended = true;
        // Remaining barriers are dropped here, which notifies their waiters.
        let left = std::mem::take(&mut queue.work);
        queue.bytes = 0;
        drop(queue);
        drop(left);
        self.shared.end.notify_all();
    }
}
