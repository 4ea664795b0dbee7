//! Failover profiles: the three time-outs that decide how soon a successor takes over, and their demands on the
//! machines.

use crate::admin::open_enum::words;
use crate::admin::setting::Setting;
use crate::lease::LeaseTiming;

words! {
    /// Speed of failover.
    pub enum Failover: "profile of failover" {
        /// Within 1.0 to 1.4 s; a process may stand still for 600 ms.
        Standard = "standard",
        /// Within 0.6 to 0.9 s; a process may stand still for 400 ms, and there are twice the heartbeats.
        Fast = "fast",
    }
}

impl Failover {
    /// Returns the time-outs of this profile.
    pub const fn timing(self) -> LeaseTiming {
        match self {
            Self::Standard => {
                LeaseTiming { heartbeat_ms: 200, lease_ms: 1_000, failure_timeout_ms: 1_250, margin_ms: 100 }
            }
            Self::Fast => LeaseTiming { heartbeat_ms: 100, lease_ms: 600, failure_timeout_ms: 750, margin_ms: 100 },
        }
    }

    /// Returns the value of a setting in this profile, or `None` if the profile does not set it.
    pub const fn value(self, setting: Setting) -> Option<u64> {
        let timing = self.timing();
        match setting {
            Setting::HeartbeatMs => Some(timing.heartbeat_ms),
            Setting::LeaseMs => Some(timing.lease_ms),
            Setting::FailureTimeoutMs => Some(timing.failure_timeout_ms),
            Setting::MarginMs => Some(timing.margin_ms),
            _ => None,
        }
    }
}

impl LeaseTiming {
    /// Returns the longest stall of a process that does not end its lease: one heartbeat is due when the stall begins,
    /// and the answer to the next one takes as long as a heartbeat at most.
    pub const fn stall_ms_max(self) -> u64 {
        self.lease_ms.saturating_sub(2 * self.heartbeat_ms)
    }

    /// Returns the longest stall tolerated on an idle machine if this timing is to hold under load: half of the stall
    /// that ends a lease.
    pub const fn stall_ms_trusted(self) -> u64 {
        self.stall_ms_max() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_safe_and_the_ordinary_one_is_default() {
        for profile in Failover::ALL {
            assert!(profile.timing().check().is_ok(), "{profile:?}");
        }
        assert_eq!(Failover::Standard.timing(), LeaseTiming::default());
        for setting in Setting::ALL {
            let standard = Failover::Standard.value(*setting);
            assert!(standard.is_none_or(|value| value == setting.default_value()), "{setting:?}");
        }
    }

    #[test]
    fn trusted_stall_is_half_of_the_one_that_ends_a_lease() {
        let stalls = |profile: Failover| (profile.timing().stall_ms_max(), profile.timing().stall_ms_trusted());
        assert_eq!((stalls(Failover::Standard), stalls(Failover::Fast)), ((600, 300), (400, 200)));
    }
}
