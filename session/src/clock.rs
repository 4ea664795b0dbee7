//! Clocks as arguments. Leases count on one that includes suspend.

use archon_types::Millis;

/// Something that tells the time in milliseconds; the place that uses it says from which instant.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Millis;
}

/// Milliseconds since the machine started, suspend included: what leases count on (PROTOCOL rule 14). The time in which a hypervisor
/// stops a whole virtual machine is commonly not included; see docs/LEASES.md.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_does_not_go_back() {
        let first = BootClock.now();
        assert!(first > Millis::ZERO && BootClock.now() >= first);
    }
}
