//! Backoff: pauses between attempts.

use std::time::Duration;

/// Pause after each consecutive failure. The bound doubles from `first` to `longest`; each pause is drawn between half
/// of the bound and the bound, so that clients that fail together do not retry together, and none retries at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Creates pauses from `first` up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Returns the pause after one more failure. `unit` is a random number in `0.0..1.0`, drawn by the caller.
    pub fn next(&mut self, unit: f64) -> Duration {
        let bound = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0))
    }

    /// Resets the pause after a successful attempt.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_their_bound_and_start_again() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(backoff.next(0.0), Duration::from_millis(250));
        assert!((0..80).all(|_| backoff.next(1.0) == Duration::from_millis(500)));
        backoff.reset();
        assert_eq!(backoff.next(0.0), Duration::from_millis(5));
    }
}
