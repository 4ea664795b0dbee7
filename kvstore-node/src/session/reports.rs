//! Queue of facts for the coordinator: shards put them in, the session takes them out. [`archon_member::Reports`]
//! decides what is kept and how long.

use archon_member::Reports;
use archon_types::{ErrorKind, Report};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct ReportQueue {
    waiting: Mutex<Reports>,
    filled: Notify,
}

impl ReportQueue {
    /// Queues a report. Returns whether there was room for it.
    pub(crate) fn put(&self, report: Report) -> bool {
        let taken = self.waiting.lock().put(report);
        if taken {
            self.filled.notify_one();
        }
        taken
    }

    /// Copies up to `count` reports; they stay until [`ReportQueue::answered`].
    pub(crate) fn peek(&self, count: usize) -> Vec<Report> {
        self.waiting.lock().peek(count)
    }

    /// Handles the answer to a report, as [`Reports::answered`].
    pub(crate) fn answered(&self, report: &Report, refused: Option<ErrorKind>) -> bool {
        self.waiting.lock().answered(report, refused)
    }

    /// Removes everything, as the incarnation of these facts is fenced.
    pub(crate) fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Returns whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Waits until something was put in since the last wait.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}
