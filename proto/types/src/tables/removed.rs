//! Nodes that are permanently gone, so that caches of nodes remove them too.

use crate::ids::{NodeId, Version};
use serde::{Deserialize, Serialize};

/// Numbers of all removed nodes. A number is never reused, so a newer list contains every older one, and the order of
/// removals need not be recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RemovedNodes {
    /// Log index of the last removal.
    pub version: Version,
    /// First and last number of each run, ascending and disjoint.
    pub ranges: Vec<(NodeId, NodeId)>,
}

impl RemovedNodes {
    /// Returns all numbers up to `last` except those in `there`, which ascend.
    pub fn all_but(there: impl Iterator<Item = NodeId>, last: NodeId, version: Version) -> Self {
        let (mut ranges, mut before) = (Vec::new(), NodeId::ZERO.get());
        for id in there.map(NodeId::get) {
            if id > before + 1 {
                ranges.push((NodeId::new(before + 1), NodeId::new(id - 1)));
            }
            before = id;
        }
        if last.get() > before {
            ranges.push((NodeId::new(before + 1), last));
        }
        Self { version, ranges }
    }

    /// Returns true if the node with this number was removed.
    pub fn contains(&self, node: NodeId) -> bool {
        let before = self.ranges.partition_point(|(first, _)| *first <= node);
        before.checked_sub(1).and_then(|index| self.ranges.get(index)).is_some_and(|(_, last)| node <= *last)
    }

    /// Replaces the list by a newer one. Returns true if it was newer.
    pub fn renew(&mut self, newer: Option<Self>) -> bool {
        let Some(newer) = newer.filter(|newer| newer.version > self.version) else { return false };
        *self = newer;
        true
    }

    /// Returns the list for a holder of `since`, if a node was removed after that.
    pub fn newer_than(&self, since: Version) -> Option<Self> {
        (self.version > since).then(|| self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_numbers_are_those_not_present() {
        let list = |there: &[u64], last| {
            let there = there.iter().copied().map(NodeId::new);
            RemovedNodes::all_but(there, NodeId::new(last), Version::new(9))
        };
        let gone = |list: &RemovedNodes| (0..10).filter(|id| list.contains(NodeId::new(*id))).collect::<Vec<_>>();
        assert_eq!(gone(&list(&[1, 2, 3], 3)), [0; 0], "nobody");
        assert_eq!(gone(&list(&[2, 3, 7], 8)), [1, 4, 5, 6, 8]);
        assert_eq!(gone(&list(&[], 2)), [1, 2]);
        assert_eq!(list(&[2, 3, 7], 8).ranges.len(), 3);
        assert_eq!(list(&[u64::MAX], u64::MAX).ranges.len(), 1);
    }

    #[test]
    fn older_list_does_not_replace_a_newer_one() {
        let list = |version, last| RemovedNodes::all_but([].into_iter(), NodeId::new(last), Version::new(version));
        let mut held = RemovedNodes::default();
        assert!(held.renew(Some(list(5, 3))));
        assert!(!held.renew(Some(list(4, 2))) && !held.renew(None));
        assert_eq!(held, list(5, 3));
        assert_eq!((held.newer_than(Version::new(5)), held.newer_than(Version::new(4))), (None, Some(list(5, 3))));
    }
}
