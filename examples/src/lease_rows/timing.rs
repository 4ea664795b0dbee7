//! How often and how long.

/// The times of all servers of a service, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// How often a lease is renewed.
    pub renew_every: u64,
    /// How long a partition is its holder's after a renewal was sent that was answered.
    pub lease: u64,
    /// How long a row must have stayed the same before another server may take it.
    pub take_over: u64,
    /// How often a server reads all rows.
    pub list_every: u64,
}

impl Timing {
    /// Renewed every two minutes, given up after three, taken over after four.
    pub const MINUTES: Self = Self { renew_every: 120_000, lease: 180_000, take_over: 240_000, list_every: 120_000 };

    /// Says what is wrong with these times, if anything is.
    ///
    /// Safe is that the holder stops before anybody else may begin, by whichever of their clocks. The holder counts from before it
    /// sent its renewal, others from after they read it, so how long either took does not matter; what is left is that two clocks
    /// may differ in their rate, by two in a hundred at most.
    ///
    /// # Errors
    /// With the arithmetic.
    pub fn check(&self) -> Result<(), String> {
        let Self { renew_every, lease, take_over, list_every } = *self;
        if renew_every == 0 || list_every == 0 {
            return Err("leases are renewed, and rows read, every 1 ms at most".to_owned());
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

/// Most partitions of a server, where `servers` of them are needed. That more are there than needed is what makes room for the
/// partitions of those that die: they are not counted here.
pub const fn max_count(partitions: usize, servers: usize) -> usize {
    partitions.div_ceil(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_over_that_clocks_can_bring_too_early_is_refused() {
        assert_eq!(Timing::MINUTES.check(), Ok(()));
        let seconds = Timing { renew_every: 10_000, lease: 30_000, take_over: 45_000, list_every: 10_000 };
        assert_eq!(seconds.check(), Ok(()));
        let hasty = Timing { take_over: 183_600, ..Timing::MINUTES };
        assert!(hasty.check().unwrap_err().contains("183600 ms must be less than the 183600 ms"));
        assert!(Timing { renew_every: 180_000, ..Timing::MINUTES }.check().is_err());
    }

    #[test]
    fn there_is_room_for_all_on_as_many_as_are_needed() {
        assert_eq!((max_count(1024, 64), max_count(1024, 128), max_count(1024, 70)), (16, 8, 15));
    }
}
