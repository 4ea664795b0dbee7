//! Recently refused members that lived in another history of the cluster (PROTOCOL rule 60): an operator must decide
//! which of the two to keep, and nothing else shows that there are two.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of recorded members, enough to alert people.
const REMEMBERED_MAX: usize = 20;
/// Time for which a member is reported after its last attempt; it tries again every second.
const TOLD_FOR: Duration = Duration::from_secs(15);

/// The refused members of one term.
#[derive(Default)]
pub(crate) struct OtherHistories {
    refused: Mutex<BTreeMap<String, (Instant, String)>>,
}

impl OtherHistories {
    /// Records the refusal of a member with this name, and the reason.
    pub(crate) fn note(&self, name: &str, why: &str) {
        self.note_at(Instant::now(), name, why);
    }

    /// Returns the members that keep trying, with the reasons of their refusal.
    pub(crate) fn told(&self) -> Vec<(String, String)> {
        self.told_at(Instant::now())
    }

    fn note_at(&self, now: Instant, name: &str, why: &str) {
        let mut refused = self.refused.lock();
        refused.retain(|_, (at, _)| now.saturating_duration_since(*at) < TOLD_FOR);
        if refused.len() < REMEMBERED_MAX || refused.contains_key(name) {
            refused.insert(name.to_owned(), (now, why.to_owned()));
        }
    }

    fn told_at(&self, now: Instant) -> Vec<(String, String)> {
        let refused = self.refused.lock();
        let tries = refused.iter().filter(|(_, (at, _))| now.saturating_duration_since(*at) < TOLD_FOR);
        tries.map(|(name, (_, why))| (name.clone(), why.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_members_are_reported_while_they_retry() {
        let (histories, now) = (OtherHistories::default(), Instant::now());
        for number in 0..REMEMBERED_MAX + 5 {
            histories.note_at(now, &format!("node-{number:02}"), "no");
        }
        histories.note_at(now + Duration::from_secs(10), "node-03", "still no");
        assert_eq!(histories.told_at(now).len(), REMEMBERED_MAX);
        assert_eq!(histories.told_at(now + TOLD_FOR), [("node-03".to_owned(), "still no".to_owned())]);
        assert!(histories.told_at(now + TOLD_FOR * 2).is_empty());
    }
}
