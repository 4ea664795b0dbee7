//! Detection of this process's own revoked certificate.
//!
//! A rejection counts only on a connection where the coordinator has authenticated itself; earlier, anybody on the
//! path could have sent it. More than half of the coordinators must reject the certificate for a while: a single one
//! may have a revocation that was undone, or may be malicious.

use crate::callers::identity::{Identity, Role};
use crate::tls::error::{TlsError, is_of_withdrawal};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Duration of rejections before they count, so that an operator can undo a mistake or replace the files.
const LASTS: Duration = Duration::from_secs(30);
/// Age after which a rejection no longer counts.
const FRESH: Duration = Duration::from_secs(10);

/// Coordinators that reject the certificate: time of the first and of the last rejection.
#[derive(Debug, Default)]
pub(crate) struct Rejections {
    refusing: Mutex<BTreeMap<String, (Instant, Instant)>>,
    /// Set if any coordinator rejects it; read without the lock on each read of a connection.
    any: AtomicBool,
}

impl Rejections {
    /// Records that an authenticated peer rejects the certificate.
    pub(crate) fn refused(&self, by: &Identity, error: &TlsError, now: Instant) {
        if by.role() != Role::Coordinator || !is_of_withdrawal(error) {
            return;
        }
        let mut refusing = self.refusing.lock();
        let (since, last) = refusing.entry(by.name().to_owned()).or_insert((now, now));
        if now.saturating_duration_since(*last) > FRESH {
            *since = now;
        }
        *last = now;
        self.any.store(true, Ordering::Relaxed);
    }

    /// Records an answer: the peer accepts the certificate.
    pub(crate) fn answered(&self, by: &Identity) {
        if self.any.load(Ordering::Relaxed) && by.role() == Role::Coordinator {
            let mut refusing = self.refusing.lock();
            refusing.remove(by.name());
            self.any.store(!refusing.is_empty(), Ordering::Relaxed);
        }
    }

    /// Forgets all rejections, because another certificate is in use from now on.
    pub(crate) fn forget(&self) {
        self.refusing.lock().clear();
        self.any.store(false, Ordering::Relaxed);
    }

    /// Returns the numbers of the rejecting coordinators, if they are more than half of `coordinators` and the
    /// rejections last.
    pub(crate) fn by_most(&self, coordinators: usize, now: Instant) -> Option<Vec<String>> {
        let refusing = self.refusing.lock();
        let lasting = refusing.iter().filter(|(_, (since, last))| {
            now.saturating_duration_since(*since) >= LASTS && now.saturating_duration_since(*last) <= FRESH
        });
        let names: Vec<String> = lasting.map(|(name, _)| name.clone()).collect();
        (names.len() > coordinators / 2).then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinator(number: u64) -> Identity {
        format!("coordinator/{number}").parse().unwrap()
    }

    fn withdrawn() -> TlsError {
        crate::tls::error::refused_in_words("received fatal alert: CertificateUnknown").unwrap()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lasting_refusal_by_most_coordinators_is_reported() {
        let (shut_out, begun) = (Rejections::default(), Instant::now());
        for second in 0..=30 {
            for number in [1, 2] {
                shut_out.refused(&coordinator(number), &withdrawn(), begun + SECOND * second);
            }
            let lasts = second == 30;
            assert_eq!(shut_out.by_most(3, begun + SECOND * second).is_some(), lasts, "{second}");
        }
        let names = shut_out.by_most(3, begun + SECOND * 31);
        assert_eq!(names.as_deref(), Some(&["1".to_owned(), "2".to_owned()][..]));
        assert_eq!(shut_out.by_most(3, begun + SECOND * 60), None, "nothing was said lately");
        assert_eq!(shut_out.by_most(4, begun + SECOND * 31), None, "half are no majority");
        shut_out.forget();
        assert_eq!(shut_out.by_most(3, begun + SECOND * 31), None);
    }

    #[test]
    fn other_or_ended_refusals_are_not_reported() {
        let (shut_out, begun) = (Rejections::default(), Instant::now());
        let expired = crate::tls::error::refused_in_words("received fatal alert: CertificateExpired").unwrap();
        for second in 0..=40 {
            let now = begun + SECOND * second;
            shut_out.refused(&coordinator(1), &withdrawn(), now);
            // One keeps rejecting; the others answer now and then, or report another error.
            shut_out.refused(&coordinator(2), &withdrawn(), now);
            if second % 20 == 0 {
                shut_out.answered(&coordinator(2));
            }
            shut_out.refused(&coordinator(3), &expired, now);
            shut_out.refused(&"node/athens".parse().unwrap(), &withdrawn(), now);
            assert_eq!(shut_out.by_most(3, now), None, "{second}");
        }
        // Long afterwards, the duration starts again.
        shut_out.refused(&coordinator(2), &withdrawn(), begun + SECOND * 200);
        shut_out.refused(&coordinator(1), &withdrawn(), begun + SECOND * 200);
        assert_eq!(shut_out.by_most(3, begun + SECOND * 200), None);
    }
}
