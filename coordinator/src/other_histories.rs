//! Members that were refused a moment ago because they have lived in another history of the cluster (PROTOCOL rule 60): somebody has
//! to say which of the two is to be kept, and nothing else shows that there are two.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most members that are remembered: whoever reads of so many need not be told of more.
const REMEMBERED_MAX: usize = 20;
/// For how long after its last attempt a member is told of; it tries again every second.
const TOLD_FOR: Duration = Duration::from_secs(15);

/// The members that were refused in one term.
#[derive(Default)]
pub(crate) struct OtherHistories {
    refused: Mutex<BTreeMap<String, (Instant, String)>>,
}

impl OtherHistories {
    /// A member of this name was refused, for this reason.
    pub(crate) fn note(&self, name: &str, why: &str) {
        self.note_at(Instant::now(), name, why);
    }

    /// The members that try again, each with why it was refused.
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
    fn members_are_told_of_while_they_try_and_never_too_many() {
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
