//! The two clocks: one that never jumps and counts suspend, for leases; the wall clock, for people.

use archon_types::Millis;
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since this machine booted, including suspend.
pub(crate) fn boot_now() -> Millis {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let millis = u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000;
    Millis::new(seconds.saturating_mul(1_000).saturating_add(millis))
}

/// Returns the Unix time in milliseconds; zero on a clock before 1970.
pub(crate) fn wall_now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
