//! Rate limit for log messages about failed handshakes of a member: one per change, not one per attempt.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval after which the same message is repeated for an address.
const AGAIN: Duration = Duration::from_secs(10 * 60);
/// Addresses with messages; failures of further addresses are not logged.
const ADDRESSES_MAX: usize = 64;

/// Last message of each address, and its time.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<BTreeMap<Arc<str>, (String, Instant)>>);

impl Complaints {
    /// Returns whether the message is new for the address, and records it.
    pub(crate) fn is_news(&self, address: &str, said: &str, now: Instant) -> bool {
        let is_late = |told: Instant| now.saturating_duration_since(told) >= AGAIN;
        let mut told = self.0.lock();
        match told.get(address) {
            Some((before, at)) if before == said && !is_late(*at) => return false,
            None if told.len() >= ADDRESSES_MAX => {
                told.retain(|_, (_, at)| !is_late(*at));
                if told.len() >= ADDRESSES_MAX {
                    return false;
                }
            }
            _ => {}
        }
        told.insert(address.into(), (said.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_logged_once_per_interval_and_address() {
        let (complaints, begun) = (Complaints::default(), Instant::now());
        let told = |address: &str, said: &str, after: Duration| complaints.is_news(address, said, begun + after);
        assert!(told("a:1", "expired", Duration::ZERO));
        assert!(!told("a:1", "expired", AGAIN / 2));
        assert!(told("b:1", "expired", AGAIN / 2));
        assert!(told("a:1", "of another cluster", AGAIN / 2), "something else is wrong now");
        assert!(!told("a:1", "of another cluster", AGAIN));
        assert!(told("b:1", "expired", AGAIN * 2));
        for number in 0..ADDRESSES_MAX {
            told(&format!("c{number}:1"), "expired", AGAIN * 2);
        }
        assert!(!told("d:1", "expired", AGAIN * 2), "so many that they would fill the log");
        assert!(told("d:1", "expired", AGAIN * 4));
    }
}
