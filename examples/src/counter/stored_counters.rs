//! Stored state of a partition.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A counter with the number of each user's last request. Both are in one value, so they change together or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counter {
    /// Number of counted requests.
    pub count: u64,
    /// Last counted request, by user.
    pub last: BTreeMap<u64, u64>,
}

/// All counters of a partition, and their last writer. They are one value of the store, so the first write of a new
/// owner makes every pending write of a former owner fail: it expects a revision that is gone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoredCounters {
    /// The fencing token: the epoch of the owner that wrote this.
    pub epoch: u64,
    /// By name.
    pub counters: BTreeMap<String, Counter>,
}

impl StoredCounters {
    /// Counts a request, unless it was counted before. A user numbers requests upwards and sends the next one after the
    /// answer to the previous one. Returns true if anything changed.
    pub fn count(&mut self, counter: &str, user: u64, request: u64) -> bool {
        let counter = self.counters.entry(counter.to_owned()).or_default();
        if counter.last.get(&user).is_some_and(|last| *last >= request) {
            return false;
        }
        counter.count += 1;
        counter.last.insert(user, request);
        true
    }

    /// Returns the value of a counter.
    pub fn value(&self, counter: &str) -> u64 {
        self.counters.get(counter).map_or(0, |counter| counter.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_request_is_counted_once() {
        let mut stored = StoredCounters::default();
        assert!(stored.count("votes", 1, 1) && stored.count("votes", 2, 1));
        assert!(!stored.count("votes", 1, 1));
        assert!(stored.count("votes", 1, 2) && stored.count("pages", 1, 2));
        assert_eq!((stored.value("votes"), stored.value("pages"), stored.value("none")), (3, 1, 0));
    }
}
