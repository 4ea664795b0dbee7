//! Clocks as arguments: leases count on one that includes suspend, logs are stamped by the wall clock.

use archon_types::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

/// Something that tells the time in milliseconds; the place that uses it says from which instant.
pub(crate) trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Millis;
}

/// Milliseconds since the machine started, suspend included: what leases count on (PROTOCOL rule 14).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Millis {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
        Millis::new(seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000))
    }
}

/// Milliseconds since 1970 on the wall clock. It may jump; only [`archon_kv::LogTime`] and people look at it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Millis {
        // A clock set before 1970 counts as 1970: log time is kept from going back by `LogTime`.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Millis {
        (**self).now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_does_not_go_back_and_the_wall_clock_is_of_this_century() {
        let first = BootClock.now();
        assert!(first > Millis::ZERO && BootClock.now() >= first);
        assert!(WallClock.now() > Millis::new(946_684_800_000));
    }
}
