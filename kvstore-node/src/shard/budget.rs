//! The time that a turn takes for operations.

use std::time::{Duration, Instant};

/// How long a turn evaluates operations. What is left goes on in the next one: in between connections are served, the log
/// is given what gathered, and peers are answered.
const TURN: Duration = Duration::from_millis(4);
/// How long it evaluates those of one client while others wait.
const SLICE: Duration = Duration::from_micros(500);
/// Operations on single keys after which the clock is looked at; after a scan it is at once.
const LOOK_EVERY: u32 = 8;

/// What is left of a turn.
#[derive(Debug)]
pub(super) struct Budget {
    /// When the clock was last looked at.
    looked: Instant,
    /// Operations since.
    unseen: u32,
    turn: Duration,
    slice: Duration,
}

impl Budget {
    /// The budget of a turn that begins `now`.
    pub(super) const fn begin(now: Instant) -> Self {
        Self { looked: now, unseen: 0, turn: TURN, slice: SLICE }
    }

    /// Notes that an operation was evaluated, a scan or one on a single key. The clock is looked at if it is time for it.
    pub(super) fn spend(&mut self, scan: bool, clock: impl FnOnce() -> Instant) {
        self.unseen += if scan { LOOK_EVERY } else { 1 };
        if self.unseen < LOOK_EVERY {
            return;
        }
        let now = clock();
        let spent = now.saturating_duration_since(self.looked);
        (self.looked, self.unseen) = (now, 0);
        self.turn = self.turn.saturating_sub(spent);
        self.slice = self.slice.saturating_sub(spent);
    }

    /// The operations of another client follow.
    pub(super) const fn next_client(&mut self) {
        self.slice = SLICE;
    }

    /// Whether it is another client's turn.
    pub(super) const fn is_slice_spent(&self) -> bool {
        self.slice.is_zero() || self.turn.is_zero()
    }

    /// Whether the turn is over.
    pub(super) const fn is_spent(&self) -> bool {
        self.turn.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_operation_ends_the_slice_and_many_end_the_turn() {
        let begun = Instant::now();
        let mut budget = Budget::begin(begun);
        for number in 1..=4 {
            assert!(!budget.is_spent());
            budget.spend(true, || begun + number * Duration::from_millis(1));
            assert!(budget.is_slice_spent());
            budget.next_client();
        }
        assert!(budget.is_spent() && budget.is_slice_spent());
    }

    #[test]
    fn the_clock_is_not_looked_at_for_every_small_operation() {
        let begun = Instant::now();
        let mut budget = Budget::begin(begun);
        for _ in 1..LOOK_EVERY {
            budget.spend(false, || unreachable!("not yet"));
        }
        budget.spend(false, || begun + TURN);
        assert!(budget.is_spent());
    }
}
