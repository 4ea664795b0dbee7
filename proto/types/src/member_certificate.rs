//! The certificate by which a member talks, as it tells of it.

use crate::ids::Millis;
use serde::{Deserialize, Serialize};
use std::fmt;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// A certificate with less than that left is to be renewed, however long it holds.
const RENEW_BEFORE_MS: u64 = 30 * DAY_MS;

/// When a member's certificate ends, and whether the member sees to its renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberCertificate {
    /// From when it holds. Unix time.
    pub begins_at: Millis,
    /// Until when it holds. Unix time.
    pub expires_at: Millis,
    /// There are other files in the member's directory, which it does not take; its log says why.
    pub not_taken: bool,
    /// Who has signed it, if that is one of the authorities in the member's directory, and the member says so.
    #[serde(default)]
    pub authority: Option<AuthorityPrint>,
}

/// The first bytes of the SHA-256 of an authority's certificate: enough to tell a cluster's authorities apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct AuthorityPrint(pub [u8; 8]);

/// As fingerprints begin elsewhere.
impl fmt::Display for AuthorityPrint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(to, "{a:02X}:{b:02X}:{c:02X}:{d:02X}…")
    }
}

/// How urgent it is to renew a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// Before long.
    Due,
    /// Less than a day is left, or nothing: whoever connects anew is refused.
    Overdue,
}

impl MemberCertificate {
    /// Whether it is to be renewed.
    pub fn renewal(self, now: Millis) -> Option<Renewal> {
        // One that holds for hours has had its last day from the beginning.
        let lasts_days = self.expires_at.since(self.begins_at) > 2 * DAY_MS;
        let last_day = if lasts_days { DAY_MS } else { 0 };
        if self.expires_at.get() <= now.get().saturating_add(last_day) {
            return Some(Renewal::Overdue);
        }
        ends_soon(self.begins_at, self.expires_at, now).then_some(Renewal::Due)
    }
}

/// Whether a certificate is to be renewed: less than a third of its time is left, if that is less than thirty days, so that what holds
/// for thirty days is not to be renewed from its first day on.
pub fn ends_soon(begins_at: Millis, expires_at: Millis, now: Millis) -> bool {
    let third = expires_at.since(begins_at) / 3;
    expires_at.get() < now.get().saturating_add(third.min(RENEW_BEFORE_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 1_790_000_000_000;

    /// One that holds for so many hours, seen when so many are left.
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
    fn a_certificate_of_thirty_days_was_to_be_renewed_from_its_first_day() {
        let days = |days: u64, left: u64| seen(days * 24, left * 24).0;
        assert_eq!([days(90, 31), days(90, 29), days(90, 0)], [false, true, true]);
        assert_eq!([days(30, 30), days(30, 11), days(30, 9)], [false, false, true]);
        assert_eq!([days(365, 31), days(365, 29), days(1, 1)], [false, true, false]);
    }

    #[test]
    fn the_last_day_is_told_louder_unless_it_is_the_only_one() {
        assert_eq!((seen(90 * 24, 31 * 24).1, seen(90 * 24, 29 * 24).1), (None, Some(Renewal::Due)));
        assert_eq!((seen(90 * 24, 25).1, seen(90 * 24, 24).1), (Some(Renewal::Due), Some(Renewal::Overdue)));
        assert_eq!((seen(90 * 24, 0).1, seen(12, 0).1), (Some(Renewal::Overdue), Some(Renewal::Overdue)));
        assert_eq!((seen(12, 11).1, seen(12, 3).1), (None, Some(Renewal::Due)));
    }
}
