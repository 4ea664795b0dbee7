//! Keys and values of a measurement, made without allocating.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Prefix of every key.
pub const KEY_PREFIX: &[u8] = b"bench/";
/// Digits of a key's number.
const DIGITS: usize = 10;
/// Bytes of a key.
pub const KEY_BYTES: usize = KEY_PREFIX.len() + DIGITS;
/// A prime, so that values of neighbouring keys begin at different places.
const PLACE_STEP: u64 = 10_000_000_019;
/// Number of places in one buffer at which values begin.
const PLACES: u64 = 4_093;

/// Distribution of the chosen keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Distribution {
    /// All equally often.
    Uniform,
    /// Few keys very often: the key of rank r with probability proportional to r^-theta, 0 < theta < 1. Ranks are
    /// spread over the keys, so that hot keys are not neighbours.
    Zipfian {
        /// The skew; YCSB uses 0.99.
        theta: f64,
    },
}

/// Chooses numbers of keys.
#[derive(Clone, Debug)]
pub(crate) enum Chooser {
    Uniform { keys: u64 },
    Zipfian(Zipfian),
}

/// Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994), section 3.2, as in YCSB.
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    keys: u64,
    spread: Spread,
    zeta: f64,
    alpha: f64,
    eta: f64,
    /// Up to here (in units of the sum) the draw is rank 1.
    second: f64,
}

impl Zipfian {
    fn new(keys: u64, theta: f64) -> Self {
        let term = |rank: u64| (rank as f64).powf(-theta);
        let zeta: f64 = (1..=keys).map(term).sum();
        let second = 1.0 + term(2);
        let share = 1.0 - (2.0 / keys as f64).powf(1.0 - theta);
        Self {
            keys,
            spread: Spread::new(keys),
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta: share / (1.0 - second / zeta),
            second,
        }
    }

    /// Returns the rank, from 0, for `unit` (0 to 1).
    fn rank(&self, unit: f64) -> u64 {
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.keys == 1 {
            return 0;
        }
        if scaled < self.second || self.keys == 2 {
            return 1;
        }
        let rank = self.keys as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.keys - 1)
    }
}

impl Chooser {
    /// `keys` must be at least 1 and `theta` between 0 and 1.
    pub(crate) fn new(distribution: Distribution, keys: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform { keys },
            Distribution::Zipfian { theta } => Self::Zipfian(Zipfian::new(keys, theta)),
        }
    }

    pub(crate) fn choose(&self, random: &mut SmallRng) -> u64 {
        match self {
            Self::Uniform { keys } => random.random_range(0..*keys),
            Self::Zipfian(zipfian) => zipfian.spread.of(zipfian.rank(random.random::<f64>())),
        }
    }
}

/// A permutation of the numbers below a bound that separates neighbours: multiples of about the golden section of the
/// bound, which fill every gap evenly (Knuth, TAOCP 3, section 6.4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    keys: u64,
    /// Coprime to `keys`, so that every number is reached.
    step: u64,
}

impl Spread {
    /// Below `keys`, at least 1.
    pub(crate) fn new(keys: u64) -> Self {
        let golden = ((keys as f64 * 0.618_033_988_749_895) as u64).max(1);
        // One of the next is coprime to it; `keys + 1` always is.
        let step = (golden..=keys + 1).find(|step| greatest_common_divisor(*step, keys) == 1).unwrap_or(1);
        Self { keys, step }
    }

    pub(crate) fn of(self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.step) % u128::from(self.keys)) as u64
    }
}

const fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// The text of a key, written in place: `bench/0000000042`.
#[derive(Clone, Copy, Debug)]
pub struct KeyText([u8; KEY_BYTES]);

impl KeyText {
    /// Returns the key with this number, up to ten digits of it.
    pub fn new(mut number: u64) -> Self {
        let mut text = [b'0'; KEY_BYTES];
        text[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);
        for digit in text[KEY_PREFIX.len()..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Self(text)
    }

    /// Returns its bytes.
    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The values of all keys: each key always has the same one, so that every read can be checked. They are pieces of one
/// incompressible buffer, shared and never copied here.
#[derive(Clone, Debug)]
pub struct Values {
    buffer: Bytes,
    bytes: usize,
}

impl Values {
    /// Returns values of this length.
    pub fn new(bytes: usize) -> Self {
        let mut random = SmallRng::seed_from_u64(0x6172_6368_6f6e);
        let buffer: Vec<u8> = (0..bytes + PLACES as usize).map(|_| random.random()).collect();
        Self { buffer: buffer.into(), bytes }
    }

    /// Returns the value of the key with this number.
    pub fn of(&self, number: u64) -> Bytes {
        let begin = (number.wrapping_mul(PLACE_STEP) % PLACES) as usize;
        self.buffer.slice(begin..begin + self.bytes)
    }

    /// Returns true if this is the value of that key.
    pub fn is(&self, number: u64, value: &[u8]) -> bool {
        let begin = (number.wrapping_mul(PLACE_STEP) % PLACES) as usize;
        self.buffer[begin..begin + self.bytes] == *value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn counts(distribution: Distribution, keys: u64, draws: usize) -> BTreeMap<u64, usize> {
        let chooser = Chooser::new(distribution, keys);
        let mut random = SmallRng::seed_from_u64(1);
        let mut counts = BTreeMap::new();
        for _ in 0..draws {
            *counts.entry(chooser.choose(&mut random)).or_default() += 1;
        }
        assert!(counts.keys().all(|key| *key < keys));
        counts
    }

    #[test]
    fn keys_have_one_length_and_sort_by_number() {
        assert_eq!(KeyText::new(42).bytes(), b"bench/0000000042");
        assert!(KeyText::new(99).bytes() < KeyText::new(100).bytes());
    }

    #[test]
    fn spread_reaches_every_number_and_separates_neighbours() {
        for keys in (1..200).chain([100_000, 99_991]) {
            let spread = Spread::new(keys);
            let reached: BTreeSet<u64> = (0..keys).map(|number| spread.of(number)).collect();
            assert_eq!((reached.len() as u64, reached.last().copied()), (keys, Some(keys - 1)), "{keys}");
        }
        let spread = Spread::new(5_000_000);
        // After a hundred of them no gap is wider than a few hundredths.
        let mut first: Vec<u64> = (0..100).map(|number| spread.of(number)).collect();
        first.sort_unstable();
        assert!(first.windows(2).all(|pair| pair[1] - pair[0] < 150_000), "{first:?}");
    }

    #[test]
    fn uniform_draws_are_even() {
        let counts = counts(Distribution::Uniform, 100, 100_000);
        assert_eq!(counts.len(), 100);
        assert!(counts.values().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    /// With theta 0.99 and 1,000 keys the most frequent key has 1 / zeta(1000, 0.99) = 13 % of the draws, the second
    /// half as many.
    #[test]
    fn zipfian_draws_match_the_formula() {
        let counts = counts(Distribution::Zipfian { theta: 0.99 }, 1_000, 200_000);
        let mut sorted: Vec<usize> = counts.values().copied().collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let zeta: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        let expected = 200_000.0 / zeta;
        assert!((sorted[0] as f64 / expected - 1.0).abs() < 0.05, "{} for {expected}", sorted[0]);
        assert!((sorted[1] as f64 / (expected / 2f64.powf(0.99)) - 1.0).abs() < 0.05, "{}", sorted[1]);
        assert!(counts.len() > 800, "the tail is drawn too: {}", counts.len());
    }

    #[test]
    fn one_or_two_keys_are_enough() {
        for keys in [1, 2, 3] {
            assert_eq!(counts(Distribution::Zipfian { theta: 0.5 }, keys, 1_000).len() as u64, keys);
        }
    }

    #[test]
    fn value_is_recognized_and_others_are_rejected() {
        let values = Values::new(100);
        assert_eq!(values.of(7).len(), 100);
        assert!(values.is(7, &values.of(7)));
        assert!(!values.is(7, &values.of(8)) && !values.is(7, &values.of(7)[..99]) && !values.is(7, b""));
    }
}
