//! Results of the operations of a thread.

use crate::failure::Failure;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies are counted in microseconds, to three digits, up to this maximum; longer ones count as the maximum.
const LATENCY_MAX_US: u64 = 600_000_000;

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Get,
    Put,
    Scan,
}

/// Latency of operations of one kind, in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// Successful operations.
    pub ops: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 90th percentile.
    pub p90_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// Maximum.
    pub max_us: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            ops: histogram.len(),
            mean_us: histogram.mean(),
            p50_us: histogram.value_at_quantile(0.50),
            p90_us: histogram.value_at_quantile(0.90),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

/// Failures of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailureCount {
    /// Number.
    pub count: u64,
    /// Message of one of them.
    pub example: String,
}

/// Histograms of the kinds that occurred, failures by kind, bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    get: Option<Histogram<u64>>,
    put: Option<Histogram<u64>>,
    scan: Option<Histogram<u64>>,
    pub(crate) failed: BTreeMap<String, FailureCount>,
    /// Bytes of keys and values read by successful operations.
    pub(crate) bytes_read: u64,
    /// Bytes of keys and values written by them.
    pub(crate) bytes_written: u64,
    /// Entries found by scans.
    pub(crate) entries_scanned: u64,
    /// Successes that ended within the measured time.
    pub(crate) in_time: u64,
}

impl Tally {
    pub(crate) fn success(&mut self, verb: Verb, took: Duration) -> Result<(), Failure> {
        let slot = self.slot(verb);
        if slot.is_none() {
            *slot = Some(
                Histogram::new_with_bounds(1, LATENCY_MAX_US, 3)
                    .map_err(|error| Failure::new("Histogram", error.to_string()))?,
            );
        }
        if let Some(histogram) = slot {
            histogram.saturating_record((took.as_micros() as u64).clamp(1, LATENCY_MAX_US));
        }
        Ok(())
    }

    pub(crate) fn failure(&mut self, failure: Failure) {
        match self.failed.get_mut(&*failure.kind) {
            Some(failed) => failed.count += 1,
            None => {
                let failed = FailureCount { count: 1, example: failure.message };
                self.failed.insert(failure.kind.into_owned(), failed);
            }
        }
    }

    fn slot(&mut self, verb: Verb) -> &mut Option<Histogram<u64>> {
        match verb {
            Verb::Get => &mut self.get,
            Verb::Put => &mut self.put,
            Verb::Scan => &mut self.scan,
        }
    }

    pub(crate) fn latency(&self, verb: Verb) -> Option<Latency> {
        let histogram = match verb {
            Verb::Get => &self.get,
            Verb::Put => &self.put,
            Verb::Scan => &self.scan,
        };
        histogram.as_ref().map(Latency::of)
    }

    pub(crate) fn add(&mut self, other: Self) -> Result<(), Failure> {
        let Self { get, put, scan, failed, bytes_read, bytes_written, entries_scanned, in_time } = other;
        for (verb, theirs) in [(Verb::Get, get), (Verb::Put, put), (Verb::Scan, scan)] {
            match (self.slot(verb), theirs) {
                (_, None) => {}
                (ours @ None, theirs) => *ours = theirs,
                (Some(ours), Some(theirs)) => {
                    ours.add(&theirs).map_err(|error| Failure::new("Histogram", error.to_string()))?;
                }
            }
        }
        for (kind, theirs) in failed {
            let ours = self.failed.entry(kind).or_insert_with(|| FailureCount { count: 0, example: theirs.example });
            ours.count += theirs.count;
        }
        self.bytes_read += bytes_read;
        self.bytes_written += bytes_written;
        self.entries_scanned += entries_scanned;
        self.in_time += in_time;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut total = Tally::default();
        for _ in 0..2 {
            let mut one = Tally { in_time: 100, ..Tally::default() };
            (1..=100).for_each(|us| one.success(Verb::Get, Duration::from_micros(us)).unwrap());
            one.failure(Failure::new("Unreachable", "gone"));
            one.failure(Failure::new("Unreachable", "gone again"));
            total.add(one).unwrap();
        }
        let latency = total.latency(Verb::Get).unwrap();
        assert_eq!((latency.ops, latency.p50_us, latency.p99_us, latency.max_us), (200, 50, 99, 100));
        assert_eq!(total.latency(Verb::Put), None);
        assert_eq!(total.in_time, 200);
        assert_eq!(total.failed["Unreachable"], FailureCount { count: 4, example: "gone".into() });
    }

    #[test]
    fn latency_beyond_the_scale_counts_as_the_maximum() {
        let mut tally = Tally::default();
        tally.success(Verb::Put, Duration::from_secs(10_000)).unwrap();
        tally.success(Verb::Put, Duration::ZERO).unwrap();
        let latency = tally.latency(Verb::Put).unwrap();
        assert!(latency.max_us >= LATENCY_MAX_US && latency.p50_us == 1, "{latency:?}");
    }
}
