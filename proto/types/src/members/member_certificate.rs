//! Certificate of a member, as the member reports it.

use crate::ids::Millis;
use serde::{Deserialize, Serialize};
use std::fmt;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// Remaining time below which a certificate is due for renewal, whatever its lifetime.
const RENEW_BEFORE_MS: u64 = 30 * DAY_MS;

/// Expiry of a member's certificate, and the state of its renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberCertificate {
    /// Start of validity. Unix time.
    pub begins_at: Millis,
    /// End of validity. Unix time.
    pub expires_at: Millis,
    /// The member's directory has other files that it does not load; its log shows the reason.
    pub not_taken: bool,
    /// Signing authority, if it is one of those in the member's directory and the member reports it.
    #[serde(default)]
    pub authority: Option<AuthorityPrint>,
}

/// First bytes of the SHA-256 of an authority's certificate: enough to distinguish a cluster's authorities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct AuthorityPrint(pub [u8; 8]);

/// Formats the print like the beginning of other fingerprints.
impl fmt::Display for AuthorityPrint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(to, "{a:02X}:{b:02X}:{c:02X}:{d:02X}…")
    }
}

/// Urgency of a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// Renewal is due soon.
    Due,
    /// Less than a day is left, or the certificate has expired: new connections are refused.
    Overdue,
}

impl MemberCertificate {
    /// Returns the urgency of the renewal, if it is due.
    pub fn renewal(self, now: Millis) -> Option<Renewal> {
        // A certificate that is valid for hours only is always in its last day.
        let lasts_days = self.expires_at.since(self.begins_at) > 2 * DAY_MS;
        let last_day = if lasts_days { DAY_MS } else { 0 };
        if self.expires_at.get() <= now.get().saturating_add(last_day) {
            return Some(Renewal::Overdue);
        }
        ends_soon(self.begins_at, self.expires_at, now).then_some(Renewal::Due)
    }
}

/// Returns true if a certificate is due for renewal: less than a third of its lifetime is left, and less than thirty
/// days. So a certificate of thirty days is not due from its first day.
pub fn ends_soon(begins_at: Millis, expires_at: Millis, now: Millis) -> bool {
    let third = expires_at.since(begins_at) / 3;
    expires_at.get() < now.get().saturating_add(third.min(RENEW_BEFORE_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 1_790_000_000_000;

    /// Returns the state of a certificate with a lifetime of `hours`, of which `left` remain.
    fn seen(hours: u64, left: u64) -> (bool, Option<Renewal>) {
        let hour = DAY_MS / 24;
        let (begins_at, expires_at) = (Millis::new(END - hours * hour - 300_000), Millis::new(END));
        let now = Millis::new(END - left * hour);
        (
            ends_soon(begins_at, expires_at, now),
            MemberCertificate { begins_at, expires_at, not_taken: false, authority: None }.renewal(now),
        )
    }

    #[test]
    fn certificate_of_thirty_days_is_not_due_on_its_first_day() {
        let days = |days: u64, left: u64| seen(days * 24, left * 24).0;
        assert_eq!([days(90, 31), days(90, 29), days(90, 0)], [false, true, true]);
        assert_eq!([days(30, 30), days(30, 11), days(30, 9)], [false, false, true]);
        assert_eq!([days(365, 31), days(365, 29), days(1, 1)], [false, true, false]);
    }

    #[test]
    fn last_day_is_urgent_unless_it_is_the_only_one() {
        assert_eq!((seen(90 * 24, 31 * 24).1, seen(90 * 24, 29 * 24).1), (None, Some(Renewal::Due)));
        assert_eq!((seen(90 * 24, 25).1, seen(90 * 24, 24).1), (Some(Renewal::Due), Some(Renewal::Overdue)));
        assert_eq!((seen(90 * 24, 0).1, seen(12, 0).1), (Some(Renewal::Overdue), Some(Renewal::Overdue)));
        assert_eq!((seen(12, 11).1, seen(12, 3).1), (None, Some(Renewal::Due)));
    }
}
