//! Operation rate of a partition, and the key that halves its load.

use crate::ranges::key_sample::KeySample;
use archon_types::Millis;
use bytes::Bytes;

/// Length of a rate window, in milliseconds.
pub(crate) const WINDOW_MS: u64 = 5_000;
/// Minimum number of sampled operations for a verdict.
const SAMPLES_MIN: usize = 64;
/// Inverse of the smallest share of the load that makes a split worthwhile.
const LESSER_PART: usize = 4;

/// Operations on one partition, in time windows.
#[derive(Debug)]
pub(crate) struct Heat {
    began: Millis,
    sample: KeySample,
    /// Keys of the previous window, in order, if its rate was above the limit.
    before: Option<Vec<Bytes>>,
    /// Operations per second in the previous window.
    rate: Option<u64>,
}

/// A partition above its rate limit, and the key that halves its load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HotPartition {
    /// Operations per second.
    pub(crate) rate: u64,
    /// First key of the right half.
    pub(crate) at: Bytes,
}

impl Heat {
    /// Starts without operations.
    pub(crate) fn new(now: Millis) -> Self {
        Self { began: now, sample: KeySample::default(), before: None, rate: None }
    }

    /// Counts an operation on this key.
    pub(crate) fn add(&mut self, key: &[u8]) {
        self.sample.add(key);
    }

    /// Returns the operations per second of the last complete window.
    pub(crate) const fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Ends a window that is due. Returns a split key if the rate was above `rate_max` in this window and the one
    /// before, and the middle key of the previous window also halves the keys of this one. A split does not help keys
    /// that only rise, one key that gets most operations, or a burst.
    pub(crate) fn judge(&mut self, now: Millis, rate_max: u64) -> Option<HotPartition> {
        let elapsed_ms = now.since(self.began);
        if elapsed_ms < WINDOW_MS {
            return None;
        }
        let ended = std::mem::replace(self, Self::new(now));
        let rate = ended.sample.operations().saturating_mul(1_000) / elapsed_ms;
        self.rate = Some(rate);
        if rate <= rate_max {
            return None;
        }
        let keys = ended.sample.sorted();
        let at = ended.before.and_then(|before| middle(&before)).filter(|at| halves(&keys, at));
        self.before = Some(keys);
        at.map(|at| HotPartition { rate, at })
    }
}

/// Returns the key that divides the sorted keys most evenly.
fn middle(keys: &[Bytes]) -> Option<Bytes> {
    let of_half = keys.get(keys.len() / 2)?;
    let begins = keys.partition_point(|key| key < of_half);
    let ends = keys.partition_point(|key| key <= of_half);
    let off = |below: &usize| (2 * below).abs_diff(keys.len());
    let below = [begins, ends].into_iter().filter(|below| *below > 0 && *below < keys.len()).min_by_key(off)?;
    keys.get(below).cloned()
}

/// Returns whether both sides of `at` get enough of the sorted keys.
fn halves(keys: &[Bytes], at: &Bytes) -> bool {
    let below = keys.partition_point(|key| key < at);
    keys.len() >= SAMPLES_MIN && below.min(keys.len() - below) * LESSER_PART >= keys.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the verdict after windows on these keys, each with 10,000 operations in five seconds.
    fn after(windows: &[&dyn Fn(u32) -> u32], most: u64) -> Option<HotPartition> {
        let mut heat = Heat::new(Millis::ZERO);
        let mut said = None;
        for (number, key) in (1..).zip(windows) {
            for operation in 0..10_000 {
                heat.add(format!("{:08}", key(operation)).as_bytes());
            }
            assert_eq!(heat.judge(Millis::new(number * WINDOW_MS - 1), most), None, "the window is not over");
            said = heat.judge(Millis::new(number * WINDOW_MS), most);
        }
        said
    }

    fn anywhere(operation: u32) -> u32 {
        operation.wrapping_mul(2_654_435_761) % 1_000
    }

    #[test]
    fn lasting_load_on_many_keys_is_halved() {
        assert_eq!(after(&[&anywhere], 1_000), None, "a burst");
        let hot = after(&[&anywhere, &anywhere], 1_000).expect("it is hot");
        let at: u32 = std::str::from_utf8(&hot.at).unwrap().parse().unwrap();
        assert!(hot.rate == 2_000 && (400..600).contains(&at), "{hot:?}");
        assert_eq!(after(&[&anywhere, &anywhere], 2_000), None, "not above the limit");
    }

    #[test]
    fn hot_key_or_rising_keys_propose_no_split() {
        let one = |_| 7;
        assert_eq!(after(&[&one, &one, &one], 1_000), None);
        let mostly_one = |operation| if operation % 5 == 0 { anywhere(operation) } else { 7 };
        assert_eq!(after(&[&mostly_one, &mostly_one], 1_000), None);
        let (first, second, third) = (|number| number, |number| 10_000 + number, |number| 20_000 + number);
        assert_eq!(
            after(&[&first, &second, &third], 1_000),
            None,
            "all that is written next is beyond every key so far"
        );
    }

    #[test]
    fn two_keys_sharing_the_load_are_separated() {
        let two = |operation| operation % 2;
        assert_eq!(after(&[&two, &two], 1_000).map(|hot| hot.at), Some(Bytes::from_static(b"00000001")));
    }

    #[test]
    fn few_operations_propose_no_split() {
        let mut heat = Heat::new(Millis::ZERO);
        for window in 1..5 {
            (0..20_u8).for_each(|key| heat.add(&[key]));
            assert_eq!(heat.judge(Millis::new(window * WINDOW_MS), 1), None);
        }
    }

    proptest! {
        /// The middle is one of the keys, not the least one, and no other key divides them more evenly.
        #[test]
        fn middle_divides_keys_most_evenly(mut keys in proptest::collection::vec(0..20_u8, 0..60)) {
            keys.sort_unstable();
            let keys: Vec<Bytes> = keys.into_iter().map(|key| Bytes::copy_from_slice(&[key])).collect();
            let off = |at: &Bytes| (2 * keys.partition_point(|key| key < at)).abs_diff(keys.len());
            let candidates = keys.iter().filter(|key| Some(*key) != keys.first());
            match middle(&keys) {
                Some(at) => {
                    prop_assert!(keys.contains(&at) && Some(&at) != keys.first());
                    prop_assert!(candidates.clone().all(|other| off(other) >= off(&at)), "{at:?} of {keys:?}");
                }
                None => prop_assert_eq!(candidates.count(), 0),
            }
        }
    }
}
