//! Retry policy: a budget shared by all calls of a client, and the back-off of one call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Tokens are counted in thousandths.
const TOKENS_MAX: u32 = 10_000;
const TOKENS_PER_FAILURE: u32 = 1_000;
const TOKENS_PER_SUCCESS: u32 = 100;

/// First pause of a call's back-off.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Maximum pause of a call's back-off.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Maximum pause that a server can request.
const PAUSE_ASKED_MAX: Duration = Duration::from_secs(5);

/// The retry budget of gRPC (proposal A6): 10 tokens, one less per failure, a tenth more per success; quick retries
/// only while more than half are left.
///
/// An exhausted budget does not end a call, which must survive a fail-over within its deadline; it makes every call
/// wait the maximum pause, so that many clients together do not overload a recovering server.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(TOKENS_MAX))
    }
}

impl Budget {
    /// Counts a success.
    pub(crate) fn success(&self) {
        // A full budget is the usual case, and must not make every call write to a shared word.
        if self.0.load(Ordering::Relaxed) < TOKENS_MAX {
            self.update(|tokens| (tokens + TOKENS_PER_SUCCESS).min(TOKENS_MAX));
        }
    }

    /// Counts a failure that will be retried.
    pub(crate) fn failure(&self) {
        self.update(|tokens| tokens.saturating_sub(TOKENS_PER_FAILURE));
    }

    /// Returns whether retries may be quick.
    pub(crate) fn allows_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) > TOKENS_MAX / 2
    }

    fn update(&self, change: impl Fn(u32) -> u32) {
        // The closure always returns a value, so this never fails.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| Some(change(tokens)));
    }
}

/// Back-off of one call: from 10 ms, doubling up to 500 ms, each pause between half of that and the whole.
#[derive(Debug)]
pub(crate) struct Backoff(archon_types::Backoff);

impl Default for Backoff {
    fn default() -> Self {
        Self(archon_types::Backoff::new(PAUSE_FIRST, PAUSE_MAX))
    }
}

impl Backoff {
    /// Returns the next pause. `quick` comes from the budget, or from a server that requested a pause; `asked` is the
    /// minimum requested by the server, `unit` is a random number in `0.0..1.0`.
    pub(crate) fn next(&mut self, quick: bool, asked: Option<Duration>, unit: f64) -> Duration {
        let grown = self.0.next(unit);
        let pause = if quick { grown } else { PAUSE_MAX.mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0)) };
        pause.max(asked.unwrap_or_default().min(PAUSE_ASKED_MAX))
    }

    /// Resets after a success.
    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }

    /// Returns the next pause with this thread's randomness.
    pub(crate) fn pause(&mut self, quick: bool, asked_ms: Option<u64>) -> Duration {
        self.next(quick, asked_ms.map(Duration::from_millis), rand::random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_reset() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next(true, None, 1.0).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 500, 500]);
        backoff.reset();
        assert_eq!(backoff.next(true, None, 0.0).as_millis(), 5);
    }

    #[test]
    fn pause_requested_by_server_is_bounded() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(true, Some(Duration::from_millis(700)), 1.0).as_millis(), 700);
        assert_eq!(backoff.next(true, Some(Duration::from_secs(3_600)), 1.0), PAUSE_ASKED_MAX);
    }

    #[test]
    fn exhausted_budget_makes_every_pause_the_maximum() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(false, None, 1.0), PAUSE_MAX);
        assert_eq!(backoff.next(false, None, 0.0), PAUSE_MAX / 2);
    }

    #[test]
    fn five_failures_exhaust_quick_retries() {
        let budget = Budget::default();
        for _ in 0..4 {
            budget.failure();
            assert!(budget.allows_quick());
        }
        budget.failure();
        assert!(!budget.allows_quick());
        for _ in 0..10 {
            assert!(!budget.allows_quick() || budget.0.load(Ordering::Relaxed) > 5_000);
            budget.success();
        }
        assert!(budget.allows_quick());
    }

    #[test]
    fn tokens_stay_within_bounds() {
        let budget = Budget::default();
        for _ in 0..100 {
            budget.failure();
        }
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
        for _ in 0..1_000 {
            budget.success();
        }
        assert_eq!(budget.0.load(Ordering::Relaxed), TOKENS_MAX);
    }
}
