//! Clocks as arguments: leases count on one that includes suspend, logs are stamped by the wall clock and never go back.

use archon_types::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

/// Something that tells the time in milliseconds; the place that uses it says from which instant.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Millis;
}

/// Milliseconds since the machine started, suspend included: what leases count on (PROTOCOL rule 14).
#[derive(Clone, Copy, Default, Debug)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Millis {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
        Millis::new(seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000))
    }
}

/// Milliseconds since 1970 on the wall clock. It may jump; only [`LogTime`] and people look at it.
#[derive(Clone, Copy, Default, Debug)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Millis {
        // A clock set before 1970 counts as 1970: log time is kept from going back by LogTime.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Millis {
        (**self).now()
    }
}

/// A partition's log time: `max(the leader's wall clock, the last stamp)`, so that it never falls (PROTOCOL rule 24).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogTime {
    last: Millis,
}

impl LogTime {
    /// Goes on from the last stamp known: the one stored with the partition, or of its last log entry.
    pub const fn starting_at(last: Millis) -> Self {
        Self { last }
    }

    /// The stamp for an entry made when the leader's wall clock shows `wall`.
    pub fn stamp(&mut self, wall: Millis) -> Millis {
        self.last = self.last.max(wall);
        self.last
    }

    /// Takes in the stamp of an entry somebody else made.
    pub fn observe(&mut self, stamp: Millis) {
        self.last = self.last.max(stamp);
    }

    /// The last stamp.
    pub const fn last(&self) -> Millis {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_time_never_falls() {
        let mut time = LogTime::starting_at(Millis::new(100));
        assert_eq!(time.stamp(Millis::new(50)), Millis::new(100));
        assert_eq!(time.stamp(Millis::new(150)), Millis::new(150));
        time.observe(Millis::new(400));
        time.observe(Millis::new(1));
        assert_eq!(time.stamp(Millis::new(200)), Millis::new(400));
    }

    #[test]
    fn the_boot_clock_does_not_go_back_and_the_wall_clock_is_of_this_century() {
        let first = BootClock.now();
        assert!(first > Millis::ZERO && BootClock.now() >= first);
        assert!(WallClock.now() > Millis::new(946_684_800_000));
    }
}
