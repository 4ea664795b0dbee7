//! Wall clock. Leases use another one, [`archon_session::BootClock`].

use archon_session::Clock;
use archon_types::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 on the wall clock. It may jump; only [`archon_kv::LogTime`] and displays use it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Millis {
        // A clock set before 1970 counts as 1970; `LogTime` keeps log time from going back.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_is_of_this_century() {
        assert!(WallClock.now() > Millis::new(946_684_800_000));
    }
}
