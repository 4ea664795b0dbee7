//! Histograms of durations with fixed bounds. An observation costs two relaxed additions, without locks or
//! allocations.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds, inclusive. A last bucket counts longer durations.
pub const BOUNDS_MICROS: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000,
];

/// Includes the bucket above the last bound.
const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// Durations, counted by any thread. A thread that counts many has its own histogram (see
/// [`PerThread`](crate::PerThread)) with its own cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    pub fn observe(&self, took: Duration) {
        self.counts[bucket_of(took)].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the current counts. Concurrent observations may be in a bucket and not yet in the sum.
    pub fn read(&self) -> Distribution {
        Distribution {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum_nanos: self.sum_nanos.load(Ordering::Relaxed),
        }
    }
}

/// Returns the bucket of a duration: the first one with a bound of at least that duration.
fn bucket_of(took: Duration) -> usize {
    BOUNDS_MICROS.partition_point(|bound| Duration::from_micros(*bound) < took)
}

/// Counted durations at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Distribution {
    counts: [u64; BUCKETS],
    sum_nanos: u64,
}

impl Distribution {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the durations.
    pub const fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_nanos)
    }

    /// Returns the upper bound of each bucket in seconds, the last one infinite, and the number of durations in that
    /// bucket alone.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS_MICROS.iter().map(|bound| Duration::from_micros(*bound).as_secs_f64());
        bounds.chain([f64::INFINITY]).zip(self.counts)
    }
}

impl AddAssign for Distribution {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.wrapping_add(more);
        }
        self.sum_nanos = self.sum_nanos.wrapping_add(other.sum_nanos);
    }
}

impl std::iter::Sum for Distribution {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bucket_includes_its_upper_bound() {
        assert_eq!(bucket_of(Duration::ZERO), 0);
        for (bucket, bound) in BOUNDS_MICROS.into_iter().enumerate() {
            assert_eq!(bucket_of(Duration::from_micros(bound)), bucket);
            assert_eq!(bucket_of(Duration::from_micros(bound) + Duration::from_nanos(1)), bucket + 1);
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn bounds_rise_from_50_microseconds_to_5_seconds() {
        assert!(BOUNDS_MICROS.is_sorted_by(|one, next| one < next));
        assert_eq!((BOUNDS_MICROS[0], BOUNDS_MICROS[15]), (50, 5_000_000));
    }

    proptest! {
        #[test]
        fn histograms_of_threads_sum_to_the_total(durations in proptest::collection::vec((0..4_usize, 0..20_000_000_u64), 0..200)) {
            let (threads, all): ([Histogram; 4], Histogram) = Default::default();
            for (thread, micros) in &durations {
                threads[*thread].observe(Duration::from_micros(*micros));
                all.observe(Duration::from_micros(*micros));
            }
            let sum: Distribution = threads.iter().map(Histogram::read).sum();
            prop_assert_eq!(sum, all.read());
            prop_assert_eq!(sum.count(), durations.len() as u64);
            prop_assert_eq!(sum.sum(), Duration::from_micros(durations.iter().map(|(_, micros)| micros).sum()));
            // Each duration is counted in the bucket with its bounds.
            let mut below = -1.0;
            for (bound, count) in sum.buckets() {
                let within = |micros: u64| (below..=bound).contains(&(micros as f64 / 1e6)) && micros as f64 / 1e6 != below;
                prop_assert_eq!(count, durations.iter().filter(|(_, micros)| within(*micros)).count() as u64);
                below = bound;
            }
        }
    }
}
