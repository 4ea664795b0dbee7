//! How long this machine lets a thread stand still that only wants to wake up: what leases are to bear.

use archon_types::{Failover, LeaseTiming};
use std::time::{Duration, Instant};

/// How often the thread that watches wants to wake up.
const EVERY: Duration = Duration::from_millis(1);
/// How long is watched: what comes once in an hour is not seen so, what comes once in a second is.
pub(crate) const WATCHED: Duration = Duration::from_secs(2);

/// The longest that a thread slept beyond what it asked for while it was watched. Blocks for as long as is watched.
pub(crate) fn longest(watched: Duration) -> Duration {
    let begun = Instant::now();
    let (mut last, mut longest) = (begun, Duration::ZERO);
    while last.saturating_duration_since(begun) < watched {
        std::thread::sleep(EVERY);
        let now = Instant::now();
        longest = longest.max(now.saturating_duration_since(last).saturating_sub(EVERY));
        last = now;
    }
    longest
}

/// The arithmetic of a timing and a stall that was seen, if that was too long for it.
pub(crate) fn too_long(timing: LeaseTiming, seen: Duration) -> Option<String> {
    let (LeaseTiming { heartbeat_ms, lease_ms, .. }, trusted_ms) = (timing, timing.stall_ms_trusted());
    (seen > Duration::from_millis(trusted_ms)).then(|| {
        format!(
            "a timer of this machine came {} ms late within {} s, without any load of archon's, and may come {trusted_ms} ms late: half \
             of what ends a lease, {lease_ms} ms − 2 × {heartbeat_ms} ms",
            seen.as_millis(),
            WATCHED.as_secs()
        )
    })
}

/// The quickest profile that this machine may run.
pub(crate) fn quickest(seen: Duration) -> Option<Failover> {
    [Failover::Fast, Failover::Standard].into_iter().find(|profile| too_long(profile.timing(), seen).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stands_still_now_and_then_is_not_to_fail_over_fast() {
        let fits = |ms| quickest(Duration::from_millis(ms));
        assert_eq!((fits(200), fits(201)), (Some(Failover::Fast), Some(Failover::Standard)));
        assert_eq!((fits(300), fits(301)), (Some(Failover::Standard), None));
        let why = too_long(Failover::Fast.timing(), Duration::from_millis(250)).unwrap();
        assert!(why.contains("came 250 ms late") && why.contains("600 ms − 2 × 100 ms"), "{why}");
    }

    #[test]
    fn what_is_seen_is_no_longer_than_what_was_watched() {
        let (begun, seen) = (Instant::now(), longest(Duration::from_millis(20)));
        assert!(seen < begun.elapsed());
    }
}
