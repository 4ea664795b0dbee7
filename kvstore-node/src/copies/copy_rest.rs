//! Rest of copies from and to this node, on its clock and by its counters.

use super::copy_pace::CopyPace;
use crate::statistics::metrics::Metrics;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rest of copies from and to this node.
pub(crate) struct CopyRest {
    pace: CopyPace,
    metrics: Arc<Metrics>,
}

impl CopyRest {
    /// Creates the rest of copies of a node with these counters.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { pace: CopyPace::default(), metrics }
    }

    /// Records work of copies from or to this node.
    pub(crate) fn worked(&self, worked: Duration) {
        self.pace.worked(worked, self.used(), Instant::now());
    }

    /// Waits for the rest of copies from and to this node. Returns whether they have to rest at times, because the node
    /// is in use.
    pub(crate) async fn rest(&self) -> bool {
        let mut began = None;
        loop {
            let now = Instant::now();
            match self.pace.rest(self.used(), now) {
                Some(rest) if !rest.is_zero() => {
                    began.get_or_insert(now);
                    tokio::time::sleep(rest).await;
                }
                rest => {
                    let rested = began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
                    self.metrics.copies_rested.add(rested);
                    return rest.is_some();
                }
            }
        }
    }

    /// Returns the work for clients so far: operations accepted, and committed entries of which this node has a copy.
    fn used(&self) -> u64 {
        self.metrics.operations.get() + self.metrics.commits.get()
    }
}
