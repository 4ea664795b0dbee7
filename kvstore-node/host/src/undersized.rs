//! Partitions that are merged without anybody asking: how a leader notices that its partition has been small for a while. Which
//! neighbours are small, too, the coordinator knows.

use archon_types::{KeyRange, Millis, RangeLimits, Undersized};

/// How long a partition must have been small before its leader says so, in milliseconds.
const SMALL_MS: u64 = 60_000;
/// How often it says so, in milliseconds.
const SAY_AGAIN_MS: u64 = 10_000;

/// Since when a partition is small.
#[derive(Debug)]
pub(crate) struct SmallWatch {
    range: KeyRange,
    since: Millis,
    rate_most: Option<u64>,
    said: Option<Millis>,
}

impl SmallWatch {
    /// Takes in what the partition of these keys holds and gets now, and what was known before. With it, what is to be said now.
    pub(crate) fn look(
        before: Option<Self>,
        now: Millis,
        limits: RangeLimits,
        range: &KeyRange,
        has: Option<Undersized>,
    ) -> (Option<Self>, Option<Undersized>) {
        let Some(has) = has.filter(|has| limits.may_merge(*has)) else { return (None, None) };
        let before = before.filter(|before| before.range == *range);
        let new = || Self { range: range.clone(), since: now, rate_most: None, said: None };
        let mut watch = before.unwrap_or_else(new);
        watch.rate_most = watch.rate_most.max(has.rate);
        let lasted = now.since(watch.since) >= SMALL_MS;
        let due = watch.said.is_none_or(|said| now.since(said) >= SAY_AGAIN_MS);
        let says = (lasted && due).then_some(Undersized { bytes: has.bytes, rate: watch.rate_most });
        if says.is_some() {
            watch.said = Some(now);
        }
        (Some(watch), says)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RangeLimits =
        RangeLimits { split_above_bytes: None, split_above_rate: Some(1_000), merge_below_bytes: Some(100) };

    /// What is said when a partition is looked at once a second, and has that at each.
    fn says(
        seconds: u64,
        range: impl Fn(u64) -> KeyRange,
        has: impl Fn(u64) -> Option<Undersized>,
    ) -> Vec<(u64, Undersized)> {
        let mut watch = None;
        let mut said = Vec::new();
        for second in 0..seconds {
            let (next, says) =
                SmallWatch::look(watch, Millis::new(second * 1_000), LIMITS, &range(second), has(second));
            watch = next;
            said.extend(says.map(|says| (second, says)));
        }
        said
    }

    fn small(bytes: u64, rate: u64) -> Option<Undersized> {
        Some(Undersized { bytes, rate: Some(rate) })
    }

    #[test]
    fn it_is_said_after_a_minute_and_again_with_the_highest_rate_seen() {
        let said = says(85, |_| KeyRange::ALL, |second| small(second, if second == 65 { 300 } else { 20 }));
        let expected = [(60, small(60, 20)), (70, small(70, 300)), (80, small(80, 300))];
        assert_eq!(said, expected.map(|(second, has)| (second, has.unwrap())));
    }

    #[test]
    fn what_was_too_much_once_begins_anew() {
        for too_much in [small(101, 0), small(0, 501), Some(Undersized { bytes: 0, rate: None }), None] {
            let said = says(100, |_| KeyRange::ALL, |second| if second == 30 { too_much } else { small(1, 1) });
            assert_eq!(said.iter().map(|said| said.0).collect::<Vec<_>>(), [91], "{too_much:?}");
        }
    }

    #[test]
    fn a_partition_with_other_keys_is_another_one() {
        let half = || KeyRange::ALL.before(bytes::Bytes::from_static(b"m"));
        let said = says(100, |second| if second < 30 { KeyRange::ALL } else { half() }, |_| small(1, 1));
        assert_eq!(said.iter().map(|said| said.0).collect::<Vec<_>>(), [90]);
    }
}
