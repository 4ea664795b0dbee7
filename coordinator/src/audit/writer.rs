//! The task that writes records.

use super::file::AuditFile;
use super::record::Record;
use crate::statistics::metrics::Metrics;
use archon_security::Refusals;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Maximum number of lines that one blocking task writes.
const AT_ONCE_MAX: usize = 256;
/// Interval between checks for unreported left-out refusals.
const SETTLE_INTERVAL: Duration = Duration::from_secs(5);

/// State of the task.
pub(super) struct Writer {
    pub(super) queue: mpsc::Receiver<Record>,
    pub(super) file: AuditFile,
    pub(super) metrics: Arc<Metrics>,
    pub(super) refusals: Arc<Refusals>,
}

impl Writer {
    /// Writes arriving records until `stop`, and then the remaining ones.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut settle = tokio::time::interval(SETTLE_INTERVAL);
        // A partial line left by a crash is cut off now, not only before the next one.
        let mut file = write(self.file, Vec::new(), &self.metrics).await;
        while let Some(open) = file {
            let mut records = Vec::new();
            let stopped = tokio::select! {
                received = self.queue.recv_many(&mut records, AT_ONCE_MAX) => received == 0,
                _ = settle.tick() => {
                    self.refusals.settle(false);
                    false
                }
                () = stop.cancelled(), if !self.queue.is_closed() => {
                    self.refusals.settle(true);
                    // Later records are only counted; queued ones are written before the end.
                    self.queue.close();
                    false
                }
            };
            file = write(open, records, &self.metrics).await;
            if stopped {
                return;
            }
        }
    }
}

/// Writes lines in a blocking task, which owns the file meanwhile; returns `None` if that failed.
async fn write(mut file: AuditFile, records: Vec<Record>, metrics: &Arc<Metrics>) -> Option<AuditFile> {
    let metrics = Arc::clone(metrics);
    let written = tokio::task::spawn_blocking(move || {
        // The file survives a panic: the next lines are written to it.
        if catch_unwind(AssertUnwindSafe(|| append(&mut file, &records, &metrics))).is_err() {
            tracing::error!(lines = records.len(), "writing lines of the audit file panicked");
        }
        file
    });
    written.await.inspect_err(|error| tracing::error!(%error, "the audit file cannot be written any longer")).ok()
}

fn append(file: &mut AuditFile, records: &[Record], metrics: &Metrics) {
    let mut failure = file.open().err();
    for record in records {
        match file.append(record) {
            Ok(()) => metrics.audit_lines.add(1),
            Err(error) => {
                metrics.audit_dropped.add(1);
                failure = Some(error);
            }
        }
    }
    if !records.is_empty()
        && let Err(error) = file.sync()
    {
        failure = Some(error);
    }
    if let Some(error) = failure {
        tracing::warn!(path = %file.path().display(), %error, "the audit file was not written");
    }
}
