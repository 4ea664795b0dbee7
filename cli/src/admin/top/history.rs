//! Operations per second that the cluster answered over the last minutes.

use std::collections::VecDeque;
use std::time::Duration;

/// Time covered by a chart, unless polls are so far apart that a column would have fewer than one.
pub(super) const WINDOW: Duration = Duration::from_secs(300);
/// Maximum number of samples: twice those of the window at the fastest polling.
const SAMPLES_MAX: usize = 3_000;

/// Samples, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History(VecDeque<Sample>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    rate: u64,
}

impl History {
    /// Adds the rate seen at `at`, which is not before the last one.
    pub(super) fn add(&mut self, at: Duration, rate: u64) {
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Sample { at, rate });
    }

    /// Returns the newest rate.
    pub(super) fn last(&self) -> Option<u64> {
        self.0.back().map(|sample| sample.rate)
    }

    /// Returns `count` columns up to `now`, each with the mean of its samples, or none without samples. `every` is the
    /// polling interval. Columns begin at multiples of their length, so that the chart moves in whole columns.
    pub(super) fn columns(&self, now: Duration, every: Duration, count: u16) -> Columns {
        let each_ms = column_ms(every, count);
        let column_of = |at: Duration| at.as_millis() / each_ms;
        let first = column_of(now) + 1;
        let mut sums = vec![(0_u128, 0_u128); usize::from(count)];
        let mut most = None;
        for sample in self.0.iter().rev() {
            // Counted from the right, the present one is 0.
            let back = first - 1 - column_of(sample.at).min(first - 1);
            let back = usize::try_from(back).unwrap_or(usize::MAX);
            let Some(at) = usize::from(count).checked_sub(back.saturating_add(1)) else { break };
            sums[at].0 += u128::from(sample.rate);
            sums[at].1 += 1;
            most = most.max(Some(sample.rate));
        }
        let mean =
            |(sum, count): (u128, u128)| sum.checked_div(count).map(|mean| u64::try_from(mean).unwrap_or(u64::MAX));
        let rates: Vec<Option<u64>> = sums.into_iter().map(mean).collect();
        let length = each_ms.saturating_mul(count.into());
        Columns { rates, most, length: Duration::from_millis(u64::try_from(length).unwrap_or(u64::MAX)) }
    }
}

/// Returns the duration of a column: at least two polls, because late ones would leave gaps.
fn column_ms(every: Duration, count: u16) -> u128 {
    let even = WINDOW.as_millis() / u128::from(count.max(1));
    even.max(2 * every.as_millis()).max(1)
}

/// A chart of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Columns {
    /// Operations per second, oldest first.
    pub(super) rates: Vec<Option<u64>>,
    /// The highest sample, which is above any mean.
    pub(super) most: Option<u64>,
    /// The duration of all columns together.
    pub(super) length: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn columns_are_means_and_missing_samples_are_gaps() {
        let mut history = History::default();
        for (seconds, rate) in [(0, 100), (1, 200), (10, 50), (19, 70)] {
            history.add(at(seconds), rate);
        }
        let columns = history.columns(at(29), EVERY, 30);
        assert_eq!((columns.length, columns.most), (at(300), Some(200)));
        assert_eq!(columns.rates[27..], [Some(150), Some(60), None]);
        assert!(columns.rates[..27].iter().all(Option::is_none));
    }

    #[test]
    fn chart_is_constant_within_a_column() {
        let mut history = History::default();
        (0..40).for_each(|second| history.add(at(second), second));
        let of = |now| history.columns(at(now), EVERY, 30).rates;
        assert_eq!(of(40), of(49));
        assert_eq!(of(49)[1..], of(50)[..29], "then it moves on by one");
    }

    #[test]
    fn rare_polls_leave_no_gaps() {
        let mut history = History::default();
        let every = at(60);
        (0..20).for_each(|look| history.add(at(60 * look), 7));
        let columns = history.columns(at(60 * 19), every, 10);
        assert_eq!((columns.rates, columns.length), (vec![Some(7); 10], at(1_200)));
    }

    #[test]
    fn history_is_bounded_and_accepts_any_number() {
        let mut history = History::default();
        (0..10_000).for_each(|second| history.add(at(second), u64::MAX));
        assert_eq!(history.0.len(), SAMPLES_MAX);
        assert_eq!(history.columns(at(9_999), EVERY, 2).rates, [Some(u64::MAX); 2]);
        assert!(history.columns(at(9_999), EVERY, 0).rates.is_empty());
        assert_eq!(history.last(), Some(u64::MAX));
    }
}
