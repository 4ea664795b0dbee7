//! Facts on their way to the coordinator: shards put in, the session takes out. What is kept until when is decided by
//! [`archon_member::Reports`].

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
    /// Queues a report. Returns whether it was taken.
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

    /// A report was answered, as [`Reports::answered`].
    pub(crate) fn answered(&self, report: &Report, refused: Option<ErrorKind>) -> bool {
        self.waiting.lock().answered(report, refused)
    }

    /// Forgets everything: the incarnation whose facts they were is over.
    pub(crate) fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Waits until something was put in since the last wait.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }
}
