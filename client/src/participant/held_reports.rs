//! Reports held back while a service in another process may still act for a lost partition.

use archon_types::Millis;
use std::time::Duration;

/// Losses that the service has not been informed of, and the time until which no report is sent.
///
/// From the decision of a loss until its delivery the service is permitted nothing ([`Self::is_delivering`]), so its
/// last permission ends with the lease that it had at the decision, or one delay after the delivery if that is earlier.
#[derive(Debug)]
pub(super) struct HeldReports {
    delay_ms: u64,
    /// Number of losses that have been decided and not delivered.
    undelivered: usize,
    /// Latest end of the lease before the decisions of these losses.
    lease_until: Millis,
    until: Millis,
}

impl HeldReports {
    /// Holds reports for `delay` after the delivery of a loss.
    pub(super) fn new(delay: Duration) -> Self {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        Self { delay_ms, undelivered: 0, lease_until: Millis::ZERO, until: Millis::ZERO }
    }

    /// Handles the decision of a loss. `lease_until` is the end of the lease before the decision.
    pub(super) fn lose(&mut self, lease_until: Option<Millis>) {
        let before = if self.undelivered == 0 { Millis::ZERO } else { self.lease_until };
        self.lease_until = before.max(lease_until.unwrap_or(Millis::ZERO));
        self.undelivered += 1;
    }

    /// Handles the delivery of a loss at `now`.
    pub(super) fn deliver(&mut self, now: Millis) {
        self.undelivered = self.undelivered.saturating_sub(1);
        // Both clocks are read in whole milliseconds.
        let last = now.plus(self.delay_ms.saturating_add(1)).min(self.lease_until);
        self.until = self.until.max(last);
    }

    /// Returns whether a loss has been decided that the service has not been informed of.
    pub(super) const fn is_delivering(&self) -> bool {
        self.undelivered > 0
    }

    /// Returns whether reports are held at `now`.
    pub(super) fn holds(&self, now: Millis) -> bool {
        self.held_for(now).is_none_or(|time| !time.is_zero())
    }

    /// Returns the time from `now` until reports can be sent; `None` before all losses are delivered.
    pub(super) fn held_for(&self, now: Millis) -> Option<Duration> {
        match (self.delay_ms, self.is_delivering()) {
            (0, _) => Some(Duration::ZERO),
            (_, true) => None,
            (_, false) => Some(Duration::from_millis(self.until.since(now))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Millis {
        Millis::new(millis)
    }

    fn held(delay_ms: u64) -> HeldReports {
        HeldReports::new(Duration::from_millis(delay_ms))
    }

    #[test]
    fn reports_wait_for_delivery_and_then_for_the_delay() {
        let mut held = held(500);
        assert_eq!(held.held_for(ms(1_000)), Some(Duration::ZERO));
        held.lose(Some(ms(9_000)));
        held.lose(Some(ms(9_000)));
        held.deliver(ms(1_100));
        assert!(held.is_delivering() && held.held_for(ms(5_000)).is_none() && held.holds(ms(5_000)));
        held.deliver(ms(5_000));
        assert!(!held.is_delivering());
        assert_eq!(held.held_for(ms(5_100)), Some(Duration::from_millis(401)));
        assert!(held.holds(ms(5_500)) && !held.holds(ms(5_501)));
    }

    #[test]
    fn reports_wait_no_longer_than_the_lease_of_the_last_permission() {
        let mut held = held(500);
        held.lose(Some(ms(1_000)));
        held.deliver(ms(1_000));
        assert!(!held.holds(ms(1_000)), "the lease has ended");
        held.lose(Some(ms(1_300)));
        held.deliver(ms(1_200));
        assert_eq!(held.held_for(ms(1_200)), Some(Duration::from_millis(100)));
        // The later lease permits more.
        held.lose(Some(ms(2_000)));
        held.lose(Some(ms(4_000)));
        held.deliver(ms(3_000));
        held.deliver(ms(3_000));
        assert_eq!(held.held_for(ms(3_000)), Some(Duration::from_millis(501)));
        held.lose(None);
        held.deliver(ms(5_000));
        assert!(!held.holds(ms(5_000)), "nothing was permitted without a lease");
    }

    #[test]
    fn service_in_this_process_holds_no_reports() {
        let mut held = held(0);
        held.lose(Some(ms(9_000)));
        assert!(held.is_delivering() && !held.holds(ms(1_000)));
        held.deliver(ms(1_000));
        assert!(!held.holds(ms(1_000)));
    }
}
