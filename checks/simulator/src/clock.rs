//! Clocks with offset and drift.

use crate::random::Random;
use archon_types::Millis;

/// Two clocks whose rates differ by the maximum that lease arithmetic allows: one percent together.
const RATE_LOW: u64 = 9_951;
const RATE_HIGH: u64 = 10_049;
const RATE_ONE: u64 = 10_000;

/// A machine's clock since boot, suspend included, on which leases rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset: u64,
    rate: u64,
}

impl Clock {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let rate = match random.below(3) {
            0 => RATE_LOW,
            1 => RATE_HIGH,
            _ => random.between(RATE_LOW, RATE_HIGH),
        };
        Self { offset: random.below(1_000_000), rate }
    }

    /// Returns its time at a true instant.
    pub(crate) fn at(&self, truth: u64) -> Millis {
        Millis::new(self.offset + truth * self.rate / RATE_ONE)
    }

    /// Returns the true time at which it shows `local`, at least `truth + 1`.
    pub(crate) fn truth_of(&self, local: Millis, truth: u64) -> u64 {
        let since_start = local.get().saturating_sub(self.offset);
        (since_start * RATE_ONE / self.rate + 1).max(truth + 1)
    }
}
