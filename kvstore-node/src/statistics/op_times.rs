//! Durations of operations, as seen by the node.

use archon_telemetry::{Distribution, Histogram, Label, LabelledValues, PerThread, Reading, Series};
use archon_types::OpKind;
use std::sync::Arc;
use std::time::Duration;

/// Series by operation.
pub(crate) const BY_OP: &[Label] = &[Label { name: "op", values: &OpKind::WORDS }];

/// The durations counted by one thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadOpTimes([Histogram; OpKind::ALL.len()]);

impl ThreadOpTimes {
    /// Counts an answered operation with its duration.
    pub(crate) fn observe(&self, op: OpKind, took: Duration) {
        self.0[op as usize].observe(took);
    }
}

/// The durations of all operations of a node.
#[derive(Debug, Default)]
pub(crate) struct OpTimes(PerThread<ThreadOpTimes>);

impl OpTimes {
    /// Returns the counters of another thread.
    pub(crate) fn member(&self) -> Arc<ThreadOpTimes> {
        self.0.member()
    }
}

impl Reading for OpTimes {
    fn series(&self) -> Vec<Series> {
        let of = |op: OpKind| self.0.sum::<Distribution>(|thread| thread.0[op as usize].read());
        OpKind::ALL.iter().map(|op| (op.as_str(), of(*op))).collect::<LabelledValues<_>>().series()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_telemetry::Value;

    #[test]
    fn durations_are_counted_by_operation_over_all_threads() {
        let times = OpTimes::default();
        let threads = [times.member(), times.member()];
        for (number, op) in (1..).zip(OpKind::ALL) {
            for thread in &threads {
                thread.observe(op, Duration::from_millis(number));
            }
        }
        for (number, (op, series)) in (1..).zip(OpKind::WORDS.into_iter().zip(times.series())) {
            let Value::Distribution(found) = series.value else { panic!("{series:?}") };
            assert_eq!((series.labels, found.count()), (vec![op], 2));
            assert_eq!(found.sum(), Duration::from_millis(2 * number));
        }
    }
}
