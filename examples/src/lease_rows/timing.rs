//! Intervals and time-outs.

/// The times of all servers of a service, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Interval of renewals.
    pub renew_every: u64,
    /// Time for which a holder owns a partition, counted from the sending of an acknowledged renewal.
    pub lease: u64,
    /// Time for which a row must stay unchanged before another server may take it.
    pub take_over: u64,
    /// Interval at which a server reads all rows.
    pub list_every: u64,
}

impl Timing {
    /// Renewed every two minutes, given up after three, taken over after four.
    pub const MINUTES: Self = Self { renew_every: 120_000, lease: 180_000, take_over: 240_000, list_every: 120_000 };

    /// Checks that these times are safe.
    ///
    /// They are safe if the holder stops before any other server may begin, by any of their clocks. The holder counts
    /// from before it sent its renewal, others from after they read it, so delays of messages do not matter. The
    /// rates of two clocks may differ by at most two in a hundred.
    ///
    /// # Errors
    /// The violated inequality.
    pub fn check(&self) -> Result<(), String> {
        let Self { renew_every, lease, take_over, list_every } = *self;
        if renew_every == 0 || list_every == 0 {
            return Err("the intervals of renewals and of reading all rows must be at least 1 ms".to_owned());
        }
        if renew_every >= lease {
            return Err(format!("a lease of {lease} ms ends before it is renewed after {renew_every} ms"));
        }
        let safe = lease + lease.div_ceil(100) * 2;
        if take_over <= safe {
            return Err(format!("1.02 x {lease} ms = {safe} ms must be less than the {take_over} ms of a take-over"));
        }
        Ok(())
    }
}

/// Returns the maximum number of partitions of a server, where `servers` of them are needed. Servers beyond the needed
/// ones provide room for the partitions of those that die: they are not counted here.
pub const fn max_count(partitions: usize, servers: usize) -> usize {
    partitions.div_ceil(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_over_time_within_clock_drift_is_refused() {
        assert_eq!(Timing::MINUTES.check(), Ok(()));
        let seconds = Timing { renew_every: 10_000, lease: 30_000, take_over: 45_000, list_every: 10_000 };
        assert_eq!(seconds.check(), Ok(()));
        let hasty = Timing { take_over: 183_600, ..Timing::MINUTES };
        assert!(hasty.check().unwrap_err().contains("183600 ms must be less than the 183600 ms"));
        assert!(Timing { renew_every: 180_000, ..Timing::MINUTES }.check().is_err());
    }

    #[test]
    fn max_count_fits_all_on_the_needed_servers() {
        assert_eq!((max_count(1024, 64), max_count(1024, 128), max_count(1024, 70)), (16, 8, 15));
    }
}
