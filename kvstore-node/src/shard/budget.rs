//! Time budget of a turn for operations.

use std::time::{Duration, Instant};

/// Time for which a turn evaluates operations. The rest continues in the next one: in between connections are served,
/// gathered writes go to the log, and peers are answered.
const TURN: Duration = Duration::from_millis(4);
/// Time of a tick for values that have expired, besides what operations leave of the turn: under load they are removed
/// too, and ticks are 20 ms apart.
const EXPIRY: Duration = Duration::from_millis(1);
/// Time for operations of one client while others wait.
const SLICE: Duration = Duration::from_micros(500);
/// Operations on single keys between two clock readings; after a scan the clock is read at once.
const LOOK_EVERY: u32 = 8;

/// Rest of a turn.
#[derive(Debug)]
pub(super) struct Budget {
    /// Time of the last clock reading.
    looked: Instant,
    /// Operations since then.
    unseen: u32,
    turn: Duration,
    slice: Duration,
}

impl Budget {
    /// Returns the budget of a turn that begins `now`.
    pub(super) const fn begin(now: Instant) -> Self {
        Self { looked: now, unseen: 0, turn: TURN, slice: SLICE }
    }

    /// Returns the least budget of a tick for values that have expired.
    pub(super) const fn of_expiry(now: Instant) -> Self {
        Self { turn: EXPIRY, ..Self::begin(now) }
    }

    /// Records an evaluated operation, a scan or one on a single key. Reads the clock if it is due.
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

    /// Starts the slice of another client.
    pub(super) const fn next_client(&mut self) {
        self.slice = SLICE;
    }

    /// Returns whether it is another client's turn.
    pub(super) const fn is_slice_spent(&self) -> bool {
        self.slice.is_zero() || self.turn.is_zero()
    }

    /// Returns whether the turn's time is spent.
    pub(super) const fn is_spent(&self) -> bool {
        self.turn.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_operation_ends_slice_and_many_end_turn() {
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
    fn clock_is_not_read_for_every_small_operation() {
        let begun = Instant::now();
        let mut budget = Budget::begin(begun);
        for _ in 1..LOOK_EVERY {
            budget.spend(false, || unreachable!("not yet"));
        }
        budget.spend(false, || begun + TURN);
        assert!(budget.is_spent());
    }
}
