//! Audit log: changes of the cluster and refusals, stored beside the log in `audit.jsonl`, one numbered line each, so
//! that gaps show.
//!
//! It serves later inspection, so nothing waits for it: lines that do not fit into the queue or onto the disk are
//! counted, and the next line contains the count. [`Record`] is one line, `rotation` decides when a file is full,
//! [`AuditFile`] is the file on disk.

mod change;
mod file;
mod record;
mod rotation;
mod writer;

pub(crate) use change::Change;
pub(crate) use record::{LineKind, Outcome, Record};

use crate::clock::wall_now;
use crate::statistics::metrics::Metrics;
use archon_security::{Refusal, RefusalRecorder, Refusals};
use file::AuditFile;
use rotation::Rotation;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writer::Writer;

/// Maximum number of lines that wait to be written.
const QUEUE_MAX: usize = 1_024;
/// Maximum time for the last lines when the coordinator stops.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// Accepts records.
#[derive(Clone)]
pub(crate) struct Audit {
    queue: mpsc::Sender<Record>,
    /// Number of records that did not fit since the last one that did.
    dropped: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

impl Audit {
    /// Creates the queue; [`PendingRecords::write`] starts its writer.
    pub(crate) fn new(metrics: Arc<Metrics>) -> (Self, PendingRecords) {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let audit = Self { queue, dropped: Arc::default(), metrics };
        (audit.clone(), PendingRecords { queue: waiting, audit })
    }

    /// Records one, if it fits.
    pub(crate) fn keep(&self, record: Record) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if self.queue.try_send(Record { dropped, ..record }).is_err() {
            self.dropped.fetch_add(dropped.saturating_add(1), Ordering::Relaxed);
            self.metrics.audit_dropped.add(1);
        }
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl RefusalRecorder for Audit {
    fn note(&self, refusal: Refusal) {
        self.keep(Record::of_refusal(refusal, wall_now()));
    }
}

/// Accepted records, until they are written.
pub(crate) struct PendingRecords {
    queue: mpsc::Receiver<Record>,
    audit: Audit,
}

impl PendingRecords {
    /// Starts to write to the file of `directory`, and to record `refusals` there.
    pub(crate) fn write(self, directory: &Path, refusals: &Arc<Refusals>) -> WritingTask {
        let Self { queue, audit } = self;
        let file = AuditFile::new(directory, Rotation::default());
        let metrics = Arc::clone(&audit.metrics);
        refusals.recorded_by(Arc::new(audit));
        let stop = CancellationToken::new();
        let writer = Writer { queue, file, metrics, refusals: Arc::clone(refusals) };
        WritingTask { task: tokio::spawn(writer.run(stop.clone())), stop }
    }
}

/// The writing task.
pub(crate) struct WritingTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl WritingTask {
    /// Writes the accepted records, and ends.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        match tokio::time::timeout(DEADLINE, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "writing the audit file failed"),
            Err(_) => {
                tracing::warn!("the last lines of the audit file were not written in time");
                self.task.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::Millis;
    use serde_json::Value;

    fn change() -> Record {
        Record::bare(Millis::ZERO)
    }

    #[tokio::test]
    async fn dropped_records_are_counted_and_queued_ones_written() {
        let directory = tempfile::tempdir().unwrap();
        let (audit, waiting) = Audit::new(Arc::default());
        (0..QUEUE_MAX + 10).for_each(|_| audit.keep(change()));
        let refusals = Arc::<Refusals>::default();
        let writing = waiting.write(directory.path(), &refusals);
        while audit.queue.capacity() == 0 {
            tokio::task::yield_now().await;
        }
        audit.keep(change());
        writing.close().await;
        let text = std::fs::read_to_string(directory.path().join(file::FILE)).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), QUEUE_MAX + 1);
        assert!(lines[..QUEUE_MAX].iter().all(|line| line["dropped"] == 0), "they came before");
        assert_eq!(lines[QUEUE_MAX]["dropped"], 10);
        assert_eq!((audit.metrics.audit_lines.get(), audit.metrics.audit_dropped.get()), (QUEUE_MAX as u64 + 1, 10));
    }
}
