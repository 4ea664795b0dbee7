//! Rate limit of reported refusals, per caller and in total. Refusals beyond it are only counted.

use crate::callers::identity::Identity;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Interval over which refusals are counted.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Refusals of one caller that are reported per interval.
pub(crate) const OF_ONE_MAX: u32 = 5;
/// Refusals of all callers that are reported per interval.
const OF_ALL_MAX: u32 = 60;
/// Callers that are distinguished per interval; further ones count as one caller.
const CALLERS_MAX: usize = 64;

/// Caller of refusals that are counted together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RefusalCaller {
    /// Holder of a certificate.
    Identity(Arc<Identity>),
    /// Callers without identity, by the address that they count for.
    Address(IpAddr),
    /// Callers beyond [`CALLERS_MAX`].
    Others,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    told: u32,
    left_out: u64,
}

/// Counts refusals. Times are relative to an arbitrary moment in the past; the type uses no clock.
#[derive(Default, Debug)]
pub(crate) struct RefusalLimit {
    began: Option<Duration>,
    told: u32,
    callers: BTreeMap<RefusalCaller, Count>,
}

impl RefusalLimit {
    /// Counts a refusal at `now`; returns whether to report it. [`RefusalLimit::end`] must be called before, to take
    /// earlier counts.
    pub(crate) fn note(&mut self, who: RefusalCaller, now: Duration) -> bool {
        self.began.get_or_insert(now);
        let known = self.callers.len() < CALLERS_MAX || self.callers.contains_key(&who);
        let count = self.callers.entry(if known { who } else { RefusalCaller::Others }).or_default();
        if count.told < OF_ONE_MAX && self.told < OF_ALL_MAX {
            count.told += 1;
            self.told += 1;
            return true;
        }
        count.left_out += 1;
        false
    }

    /// Ends the interval if it is complete at `now` or if `at_once` is set; returns the number of unreported refusals
    /// per caller.
    pub(crate) fn end(&mut self, now: Duration, at_once: bool) -> Vec<(RefusalCaller, u64)> {
        let over = self.began.is_some_and(|began| now.saturating_sub(began) >= WINDOW);
        if !over && !at_once {
            return Vec::new();
        }
        let ended = std::mem::take(self);
        ended
            .callers
            .into_iter()
            .map(|(who, count)| (who, count.left_out))
            .filter(|(_, left_out)| *left_out > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::callers::identity::Role;

    fn at(last: u32) -> RefusalCaller {
        RefusalCaller::Address(IpAddr::from(last.to_be_bytes()))
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn flood_of_one_caller_is_reported_five_times_and_counted() {
        let mut limit = RefusalLimit::default();
        let mallory = RefusalCaller::Identity(Arc::new(Identity::new(Role::Client, "mallory").unwrap()));
        let told = (0..1_000).filter(|_| limit.note(mallory.clone(), seconds(100))).count();
        assert_eq!(told, 5);
        assert!(limit.note(at(1), seconds(101)), "others are told of all the same");
        assert_eq!(limit.end(seconds(159), false), [], "its time is not over");
        assert_eq!(limit.end(seconds(160), false), [(mallory.clone(), 995)]);
        assert_eq!(limit.end(seconds(300), true), [], "it is told once");
        assert!(limit.note(mallory, seconds(160)), "a new minute has begun");
    }

    #[test]
    fn refusals_and_callers_are_limited_in_total() {
        let mut limit = RefusalLimit::default();
        let told = (0..100_000).filter(|caller| limit.note(at(caller % 10_000), seconds(1))).count();
        assert_eq!(told, 60);
        assert!(limit.callers.len() <= CALLERS_MAX + 1, "{}", limit.callers.len());
        let left_out = limit.end(seconds(2), true);
        assert_eq!(left_out.iter().map(|(_, count)| count).sum::<u64>(), 100_000 - 60);
        assert!(left_out.iter().any(|(who, _)| *who == RefusalCaller::Others), "{left_out:?}");
    }
}
