//! Clocks as arguments. Leases use one that includes suspend.

use archon_types::Millis;

/// A clock in milliseconds; its user defines the origin.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Millis;
}

/// Milliseconds since the machine started, including suspend: the clock of leases (PROTOCOL rule 14). It usually does
/// not include time in which a hypervisor stops the virtual machine; see docs/concepts/leases.md.
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
    fn boot_clock_is_monotonic() {
        let first = BootClock.now();
        assert!(first > Millis::ZERO && BootClock.now() >= first);
    }
}
