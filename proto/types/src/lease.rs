//! Lease arithmetic: when two nodes could believe that they own the same partition, and why they cannot.
//!
//! A node counts its lease from the moment it *sent* the heartbeat; the coordinator counts the failure time-out from
//! its *answer*, which is later. Clock rates may differ by [`LeaseTiming::DRIFT_PERCENT`]. So with `1.01 × lease +
//! margin < failure time-out` the lease expires before a successor is named (PROTOCOL rules 13–16).

use crate::ids::Millis;
use crate::members::failover::Failover;
use serde::{Deserialize, Serialize};

/// The three time-outs that safety depends on, in milliseconds, and the margin between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseTiming {
    /// Heartbeat interval of a node.
    pub heartbeat_ms: u64,
    /// Time for which an answered heartbeat lets a node serve, from the moment it was sent.
    pub lease_ms: u64,
    /// Silence after which a node counts as failed, from the last answer it received.
    pub failure_timeout_ms: u64,
    /// Allowance for scheduling and rounding between the end of a lease and the failure time-out.
    pub margin_ms: u64,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Failover::Standard.timing()
    }
}

impl LeaseTiming {
    /// Largest difference in clock rate between two machines that the arithmetic allows for, in percent.
    pub const DRIFT_PERCENT: u64 = 1;

    /// Accepts the timing only if `3 × heartbeat < lease` and `1.01 × lease + margin < failure time-out`.
    ///
    /// # Errors
    /// [`LeaseTimingError`], with the arithmetic.
    pub fn check(self) -> Result<Self, LeaseTimingError> {
        if self.heartbeat_ms == 0 {
            return Err(LeaseTimingError::HeartbeatZero);
        }
        let three = self.heartbeat_ms.saturating_mul(3);
        if three >= self.lease_ms {
            return Err(LeaseTimingError::LeaseTooShort {
                heartbeat_ms: self.heartbeat_ms,
                three_heartbeats_ms: three,
                lease_ms: self.lease_ms,
            });
        }
        self.check_safe()
    }

    /// Accepts the timing if one lease cannot have two holders: `heartbeat < lease` and `1.01 × lease + margin <
    /// failure time-out`. Fewer than three heartbeats in a lease are safe but less robust: one lost answer may end it.
    ///
    /// # Errors
    /// [`LeaseTimingError`], with the arithmetic.
    pub fn check_safe(self) -> Result<Self, LeaseTimingError> {
        if self.heartbeat_ms == 0 {
            return Err(LeaseTimingError::HeartbeatZero);
        }
        if self.heartbeat_ms >= self.lease_ms {
            let Self { heartbeat_ms, lease_ms, .. } = self;
            return Err(LeaseTimingError::NoHeartbeatInLease { heartbeat_ms, lease_ms });
        }
        let lease_end_ms = self.lease_ms.saturating_mul(100 + Self::DRIFT_PERCENT).div_ceil(100);
        let needed_ms = lease_end_ms.saturating_add(self.margin_ms);
        if needed_ms >= self.failure_timeout_ms {
            return Err(LeaseTimingError::FailureTimeoutTooShort {
                lease_ms: self.lease_ms,
                margin_ms: self.margin_ms,
                needed_ms,
                failure_timeout_ms: self.failure_timeout_ms,
            });
        }
        Ok(self)
    }
}

/// Reason why a timing is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeaseTimingError {
    /// A heartbeat interval of zero would be a busy loop.
    #[error("heartbeat_ms is 0; set it to at least 1 (the default is 200)")]
    HeartbeatZero,
    /// Three heartbeats must fit into a lease, so that one lost answer does not end it.
    #[error(
        "3 × heartbeat must be less than the lease, but 3 × {heartbeat_ms} ms = {three_heartbeats_ms} ms >= {lease_ms} ms; \
         raise lease_ms above {three_heartbeats_ms} or lower heartbeat_ms"
    )]
    #[allow(missing_docs)]
    LeaseTooShort { heartbeat_ms: u64, three_heartbeats_ms: u64, lease_ms: u64 },
    /// A lease must be renewed before it expires.
    #[error(
        "the heartbeat must come before the lease ends, but {heartbeat_ms} ms >= {lease_ms} ms; lower heartbeat_ms"
    )]
    #[allow(missing_docs)]
    NoHeartbeatInLease { heartbeat_ms: u64, lease_ms: u64 },
    /// A lease, including drift and margin, must expire before the node counts as failed.
    #[error(
        "1.01 × lease + margin must be less than the failure time-out, but 1.01 × {lease_ms} ms + {margin_ms} ms = {needed_ms} ms \
         >= {failure_timeout_ms} ms; raise failure_timeout_ms above {needed_ms} or lower lease_ms"
    )]
    #[allow(missing_docs)]
    FailureTimeoutTooShort { lease_ms: u64, margin_ms: u64, needed_ms: u64, failure_timeout_ms: u64 },
}

/// A node's lease on its own clock (one that includes suspend).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    until: Option<Millis>,
}

impl Lease {
    /// Returns no lease: the node must not serve.
    pub const fn none() -> Self {
        Self { until: None }
    }

    /// Extends the lease by a grant of `lease_ms` for the heartbeat sent at `sent`. A grant never shortens the lease,
    /// since answers may arrive out of order.
    pub fn extend(&mut self, sent: Millis, lease_ms: u64) {
        let until = sent.plus(lease_ms);
        self.until = Some(self.until.map_or(until, |now| now.max(until)));
    }

    /// Ends the lease at once, for example when the node's incarnation changes.
    pub fn end(&mut self) {
        self.until = None;
    }

    /// Returns true if the lease is valid at `now`. The end itself is excluded.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Returns the end of the lease, if there is one.
    pub const fn until(&self) -> Option<Millis> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_timing_is_accepted() {
        assert!(LeaseTiming::default().check().is_ok());
    }

    #[test]
    fn rejected_timing_shows_the_arithmetic() {
        let short = LeaseTiming { lease_ms: 600, ..LeaseTiming::default() };
        assert!(short.check().unwrap_err().to_string().contains("3 × 200 ms = 600 ms >= 600 ms"));
        let late = LeaseTiming { failure_timeout_ms: 1_110, ..LeaseTiming::default() };
        assert!(late.check().unwrap_err().to_string().contains("= 1110 ms >= 1110 ms"));
        assert!(LeaseTiming { failure_timeout_ms: 1_111, ..LeaseTiming::default() }.check().is_ok());
    }

    #[test]
    fn lease_ends_exactly_and_is_never_shortened() {
        let mut lease = Lease::none();
        assert!(!lease.is_valid(Millis::ZERO));
        lease.extend(Millis::new(100), 1_000);
        lease.extend(Millis::new(50), 1_000);
        assert!(lease.is_valid(Millis::new(1_099)));
        assert!(!lease.is_valid(Millis::new(1_100)));
    }
}
