//! Measures timer latency of this machine, which lease timing must tolerate.

use archon_types::{Failover, LeaseTiming};
use std::time::{Duration, Instant};

/// Requested sleep of the measuring thread.
const EVERY: Duration = Duration::from_millis(1);
/// Duration of the measurement: hourly stalls are missed, stalls every second are found.
pub(crate) const WATCHED: Duration = Duration::from_secs(2);

/// Returns the longest time for which a thread slept beyond the requested one. Blocks for `watched`.
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

/// Describes the arithmetic of a timing and a measured stall, if that is too long for it.
pub(crate) fn too_long(timing: LeaseTiming, seen: Duration) -> Option<String> {
    let (LeaseTiming { heartbeat_ms, lease_ms, .. }, trusted_ms) = (timing, timing.stall_ms_trusted());
    (seen > Duration::from_millis(trusted_ms)).then(|| {
        format!(
            "a timer of this machine was {} ms late within {} s, without any load by archon; the limit is {trusted_ms} \
             ms: half of {lease_ms} ms − 2 × {heartbeat_ms} ms, the delay that ends a lease",
            seen.as_millis(),
            WATCHED.as_secs()
        )
    })
}

/// Returns the fastest profile that this machine may use.
pub(crate) fn quickest(seen: Duration) -> Option<Failover> {
    [Failover::Fast, Failover::Standard].into_iter().find(|profile| too_long(profile.timing(), seen).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalling_machine_must_not_use_fast_failover() {
        let fits = |ms| quickest(Duration::from_millis(ms));
        assert_eq!((fits(200), fits(201)), (Some(Failover::Fast), Some(Failover::Standard)));
        assert_eq!((fits(300), fits(301)), (Some(Failover::Standard), None));
        let why = too_long(Failover::Fast.timing(), Duration::from_millis(250)).unwrap();
        assert!(why.contains("was 250 ms late") && why.contains("600 ms − 2 × 100 ms"), "{why}");
    }

    #[test]
    fn measured_stall_is_at_most_the_watched_time() {
        let (begun, seen) = (Instant::now(), longest(Duration::from_millis(20)));
        assert!(seen < begun.elapsed());
    }
}
