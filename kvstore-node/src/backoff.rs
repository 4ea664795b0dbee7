//! Pauses between attempts: exponential, with full jitter, so that many nodes do not retry in step.

use rand::RngExt;
use std::time::Duration;

/// The pause after each failure in a row.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Pauses from `first` up to `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// The pause after one more failure: between half of the present bound and all of it.
    pub(crate) fn next(&mut self) -> Duration {
        let bound = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// An attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
        assert!(backoff.next() <= Duration::from_millis(10));
        for _ in 0..40 {
            assert!(backoff.next() <= Duration::from_millis(100));
        }
        assert!(backoff.next() >= Duration::from_millis(50));
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(10));
    }
}
