//! Seeded random numbers: the same seed gives the same figures.

use archon_types::mixed;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the numbers of one run out of many; runs are independent.
    pub(crate) const fn of_run(seed: u64, run: u64) -> Self {
        Self(mixed(seed ^ mixed(run)))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        let drawn = mixed(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        drawn
    }

    /// Returns a number in `0..end`.
    pub(crate) const fn below(&mut self, end: u32) -> u32 {
        // The high half of a product is even to within 2⁻³², and takes no division.
        (((self.next() >> 32) * end as u64) >> 32) as u32
    }

    /// Returns a number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with this probability.
    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.unit() < chance
    }
}
