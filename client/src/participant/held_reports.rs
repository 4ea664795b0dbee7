//! Reports held back while a service in another process may still act for a lost partition.

use archon_types::Millis;
use std::time::Duration;

/// The time until which no report is sent.
#[derive(Debug)]
pub(super) struct HeldReports {
    delay_ms: u64,
    until: Millis,
}

impl HeldReports {
    /// Holds reports for `delay` after a loss.
    pub(super) fn new(delay: Duration) -> Self {
        Self { delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), until: Millis::ZERO }
    }

    /// Handles a loss at `now`. A loss by the end of the lease holds nothing: the service was not permitted to act
    /// beyond it.
    pub(super) fn hold(&mut self, lease_until: Option<Millis>, now: Millis) {
        if lease_until.is_none_or(|until| until > now) {
            self.until = self.until.max(now.plus(self.delay_ms));
        }
    }

    /// Returns the time for which reports are held from `now` on.
    pub(super) fn held_for(&self, now: Millis) -> Duration {
        Duration::from_millis(self.until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_losses_before_the_end_of_the_lease_hold_reports() {
        let ms = Millis::new;
        let mut held = HeldReports::new(Duration::from_millis(500));
        assert_eq!(held.held_for(ms(1_000)), Duration::ZERO);
        held.hold(Some(ms(1_000)), ms(1_000));
        assert_eq!(held.held_for(ms(1_000)), Duration::ZERO, "the lease has ended");
        held.hold(Some(ms(2_000)), ms(1_100));
        assert_eq!(held.held_for(ms(1_200)), Duration::from_millis(400));
        held.hold(None, ms(1_300));
        assert_eq!(held.held_for(ms(1_300)), Duration::from_millis(500));
        assert_eq!(held.held_for(ms(1_800)), Duration::ZERO);
    }
}
