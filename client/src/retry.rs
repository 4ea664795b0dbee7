//! When to try again: a budget shared by all calls of a client, and the back-off of one call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Tokens are counted in thousandths.
const TOKENS_MAX: u32 = 10_000;
const TOKENS_PER_FAILURE: u32 = 1_000;
const TOKENS_PER_SUCCESS: u32 = 100;

/// First pause of a call's back-off.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause of a call's back-off.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Longest pause a server may ask for.
const PAUSE_ASKED_MAX: Duration = Duration::from_secs(5);

/// The retry budget of gRPC (proposal A6): 10 tokens, one gone per failure, a tenth back per success; quick retries
/// only while more than half are left.
///
/// A spent budget does not end a call, which must outlive a fail-over inside its deadline; it makes every call wait the
/// longest pause, so that many clients together do not hold down what is trying to get up.
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
        // A full budget is the ordinary case and must not make every call write to one shared word.
        if self.0.load(Ordering::Relaxed) < TOKENS_MAX {
            self.update(|tokens| (tokens + TOKENS_PER_SUCCESS).min(TOKENS_MAX));
        }
    }

    /// Counts a failure that will be retried.
    pub(crate) fn failure(&self) {
        self.update(|tokens| tokens.saturating_sub(TOKENS_PER_FAILURE));
    }

    /// Whether retries may be quick.
    pub(crate) fn allows_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) > TOKENS_MAX / 2
    }

    fn update(&self, change: impl Fn(u32) -> u32) {
        // The closure always gives a value, so this never fails.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| Some(change(tokens)));
    }
}

/// The back-off of one call: from 10 ms, doubling, to 500 ms, each pause between half of that and the whole.
#[derive(Debug)]
pub(crate) struct Backoff(archon_types::Backoff);

impl Default for Backoff {
    fn default() -> Self {
        Self(archon_types::Backoff::new(PAUSE_FIRST, PAUSE_MAX))
    }
}

impl Backoff {
    /// The next pause. `quick` comes from the budget, or from a server that asked for a pause; `asked` is what the
    /// server wants at least, `unit` is a random number in `0.0..1.0`.
    pub(crate) fn next(&mut self, quick: bool, asked: Option<Duration>, unit: f64) -> Duration {
        let grown = self.0.next(unit);
        let pause = if quick { grown } else { PAUSE_MAX.mul_f64(0.5 + 0.5 * unit.clamp(0.0, 1.0)) };
        pause.max(asked.unwrap_or_default().min(PAUSE_ASKED_MAX))
    }

    /// Starts over, after a success.
    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }

    /// The next pause with this thread's randomness.
    pub(crate) fn pause(&mut self, quick: bool, asked_ms: Option<u64>) -> Duration {
        self.next(quick, asked_ms.map(Duration::from_millis), rand::random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_start_over() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next(true, None, 1.0).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 500, 500]);
        backoff.reset();
        assert_eq!(backoff.next(true, None, 0.0).as_millis(), 5);
    }

    #[test]
    fn a_server_may_ask_for_more_but_not_for_ever() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(true, Some(Duration::from_millis(700)), 1.0).as_millis(), 700);
        assert_eq!(backoff.next(true, Some(Duration::from_secs(3_600)), 1.0), PAUSE_ASKED_MAX);
    }

    #[test]
    fn a_spent_budget_makes_every_pause_the_longest() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(false, None, 1.0), PAUSE_MAX);
        assert_eq!(backoff.next(false, None, 0.0), PAUSE_MAX / 2);
    }

    #[test]
    fn five_failures_spend_the_budget_and_ten_successes_each_pay_for_one() {
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
    fn tokens_stay_between_none_and_all() {
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
