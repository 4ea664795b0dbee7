//! Automatic merges: how a leader notices that its partition has been small for a while. The coordinator knows which
//! neighbours are small, too.

use archon_types::{KeyRange, LowUsage, Millis, RangeLimits};

/// Time for which a partition must have been small before its leader reports it, in milliseconds.
const SMALL_MS: u64 = 60_000;
/// Interval between reports, in milliseconds.
const SAY_AGAIN_MS: u64 = 10_000;

/// Watch on a small partition.
#[derive(Debug)]
pub(crate) struct SmallWatch {
    range: KeyRange,
    since: Millis,
    rate_most: Option<u64>,
    said: Option<Millis>,
}

impl SmallWatch {
    /// Updates the watch with the present size and rate of the partition of these keys. Returns the watch and the
    /// report that is due.
    pub(crate) fn look(
        before: Option<Self>,
        now: Millis,
        limits: RangeLimits,
        range: &KeyRange,
        has: Option<LowUsage>,
    ) -> (Option<Self>, Option<LowUsage>) {
        let Some(has) = has.filter(|has| limits.may_merge(*has)) else { return (None, None) };
        let before = before.filter(|before| before.range == *range);
        let new = || Self { range: range.clone(), since: now, rate_most: None, said: None };
        let mut watch = before.unwrap_or_else(new);
        watch.rate_most = watch.rate_most.max(has.rate);
        let lasted = now.since(watch.since) >= SMALL_MS;
        let due = watch.said.is_none_or(|said| now.since(said) >= SAY_AGAIN_MS);
        let says = (lasted && due).then_some(LowUsage { bytes: has.bytes, rate: watch.rate_most });
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

    /// Returns the reports of a partition that is looked at once a second, with these values.
    fn says(
        seconds: u64,
        range: impl Fn(u64) -> KeyRange,
        has: impl Fn(u64) -> Option<LowUsage>,
    ) -> Vec<(u64, LowUsage)> {
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

    fn small(bytes: u64, rate: u64) -> Option<LowUsage> {
        Some(LowUsage { bytes, rate: Some(rate) })
    }

    #[test]
    fn small_partition_is_reported_with_highest_rate() {
        let said = says(85, |_| KeyRange::ALL, |second| small(second, if second == 65 { 300 } else { 20 }));
        let expected = [(60, small(60, 20)), (70, small(70, 300)), (80, small(80, 300))];
        assert_eq!(said, expected.map(|(second, has)| (second, has.unwrap())));
    }

    #[test]
    fn exceeding_limit_once_restarts_watch() {
        for too_much in [small(101, 0), small(0, 501), Some(LowUsage { bytes: 0, rate: None }), None] {
            let said = says(100, |_| KeyRange::ALL, |second| if second == 30 { too_much } else { small(1, 1) });
            assert_eq!(said.iter().map(|said| said.0).collect::<Vec<_>>(), [91], "{too_much:?}");
        }
    }

    #[test]
    fn changed_range_restarts_watch() {
        let half = || KeyRange::ALL.before(bytes::Bytes::from_static(b"m"));
        let said = says(100, |second| if second < 30 { KeyRange::ALL } else { half() }, |_| small(1, 1));
        assert_eq!(said.iter().map(|said| said.0).collect::<Vec<_>>(), [90]);
    }
}
