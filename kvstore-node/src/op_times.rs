//! How long operations take, as the node sees it.

use archon_telemetry::{Distribution, Histogram, Label, Labelled, PerThread, Reading, Series};
use archon_types::Op;
use std::sync::Arc;
use std::time::Duration;

/// Which operation it is, where only that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpName {
    Get,
    Put,
    Delete,
    CompareAndSet,
    Increment,
    Scan,
}

impl OpName {
    const ALL: [Self; 6] = [Self::Get, Self::Put, Self::Delete, Self::CompareAndSet, Self::Increment, Self::Scan];

    /// That of an operation.
    pub(crate) const fn of(op: &Op) -> Self {
        match op {
            Op::Get { .. } => Self::Get,
            Op::Put { .. } => Self::Put,
            Op::Delete { .. } => Self::Delete,
            Op::CompareAndSet { .. } => Self::CompareAndSet,
            Op::Increment { .. } => Self::Increment,
            Op::Scan { .. } => Self::Scan,
        }
    }

    /// Whether it may change something.
    pub(crate) const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::Scan)
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::CompareAndSet => "compare_and_set",
            Self::Increment => "increment",
            Self::Scan => "scan",
        }
    }
}

const OPS: [&str; OpName::ALL.len()] = {
    let mut words = [""; OpName::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = OpName::ALL[at].as_str();
        at += 1;
    }
    words
};

/// Series by operation.
pub(crate) const BY_OP: &[Label] = &[Label { name: "op", values: &OPS }];

/// The durations that one thread counts.
#[derive(Debug, Default)]
pub(crate) struct ThreadOpTimes([Histogram; OpName::ALL.len()]);

impl ThreadOpTimes {
    /// Counts an operation that was answered after so long.
    pub(crate) fn observe(&self, op: OpName, took: Duration) {
        self.0[op as usize].observe(took);
    }
}

/// The durations of all operations of a node.
#[derive(Debug, Default)]
pub(crate) struct OpTimes(PerThread<ThreadOpTimes>);

impl OpTimes {
    /// Those of another thread.
    pub(crate) fn member(&self) -> Arc<ThreadOpTimes> {
        self.0.member()
    }
}

impl Reading for OpTimes {
    fn series(&self) -> Vec<Series> {
        let of = |op: OpName| self.0.sum::<Distribution>(|thread| thread.0[op as usize].read());
        OpName::ALL.iter().map(|op| (op.as_str(), of(*op))).collect::<Labelled<_>>().series()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_telemetry::Value;

    #[test]
    fn each_operation_is_counted_under_its_own_name_for_all_threads_together() {
        let times = OpTimes::default();
        let threads = [times.member(), times.member()];
        for (number, op) in (1..).zip(OpName::ALL) {
            for thread in &threads {
                thread.observe(op, Duration::from_millis(number));
            }
        }
        for (number, (op, series)) in (1..).zip(OPS.into_iter().zip(times.series())) {
            let Value::Distribution(found) = series.value else { panic!("{series:?}") };
            assert_eq!((series.labels, found.count()), (vec![op], 2));
            assert_eq!(found.sum(), Duration::from_millis(2 * number));
        }
    }
}
