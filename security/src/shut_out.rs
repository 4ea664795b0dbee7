//! Coordinators that refuse this process's certificate since it was withdrawn.
//!
//! Only what is said on a connection counts on which the coordinator has shown who it is: before that anybody on the way could say it. And
//! only what more than half of them say for a while: one alone may have heard of something that was taken back, or be somebody's who means
//! no good.

use crate::error::{TlsError, is_of_withdrawal};
use crate::identity::{Identity, Role};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long it is said before it counts: a slip can be taken back meanwhile, or new files put in place.
const LASTS: Duration = Duration::from_secs(30);
/// What was said last longer ago is not said any more.
const FRESH: Duration = Duration::from_secs(10);

/// Who refuses it: since when, and when it was said last.
#[derive(Debug, Default)]
pub(crate) struct ShutOut {
    refusing: Mutex<BTreeMap<String, (Instant, Instant)>>,
    /// Whether anybody does, for those who read all the time.
    any: AtomicBool,
}

impl ShutOut {
    /// Somebody who has shown who it is refuses this process's certificate.
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

    /// Somebody answers.
    pub(crate) fn answered(&self, by: &Identity) {
        if self.any.load(Ordering::Relaxed) && by.role() == Role::Coordinator {
            let mut refusing = self.refusing.lock();
            refusing.remove(by.name());
            self.any.store(!refusing.is_empty(), Ordering::Relaxed);
        }
    }

    /// Another certificate is shown from now on.
    pub(crate) fn forget(&self) {
        self.refusing.lock().clear();
        self.any.store(false, Ordering::Relaxed);
    }

    /// The numbers of those who have been refusing it, if they are more than half of `coordinators` and it lasts.
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
        crate::error::refused_in_words("received fatal alert: CertificateUnknown").unwrap()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_member_that_was_shut_out_knocked_for_ever() {
        let (shut_out, begun) = (ShutOut::default(), Instant::now());
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
    fn a_refusal_that_ends_or_is_another_s_or_another_one_stops_nobody() {
        let (shut_out, begun) = (ShutOut::default(), Instant::now());
        let expired = crate::error::refused_in_words("received fatal alert: CertificateExpired").unwrap();
        for second in 0..=40 {
            let now = begun + SECOND * second;
            shut_out.refused(&coordinator(1), &withdrawn(), now);
            // One goes on refusing, and the others answer now and then, or say something else.
            shut_out.refused(&coordinator(2), &withdrawn(), now);
            if second % 20 == 0 {
                shut_out.answered(&coordinator(2));
            }
            shut_out.refused(&coordinator(3), &expired, now);
            shut_out.refused(&"node/athens".parse().unwrap(), &withdrawn(), now);
            assert_eq!(shut_out.by_most(3, now), None, "{second}");
        }
        // Long after, it begins anew.
        shut_out.refused(&coordinator(2), &withdrawn(), begun + SECOND * 200);
        shut_out.refused(&coordinator(1), &withdrawn(), begun + SECOND * 200);
        assert_eq!(shut_out.by_most(3, begun + SECOND * 200), None);
    }
}
