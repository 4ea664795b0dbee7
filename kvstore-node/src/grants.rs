//! What the coordinator has granted this incarnation: the node's lease and the leaderships it does not cover.

use arc_swap::ArcSwap;
use archon_types::{Epoch, Lease, Millis, PartitionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
struct Grant {
    lease: Lease,
    withdrawn: BTreeMap<PartitionId, Epoch>,
}

/// The node's lease, written by the session and read by every shard just before an answer leaves.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    present: ArcSwap<Grant>,
    /// Number of the newest heartbeat whose answer was taken in.
    newest: Mutex<u64>,
}

impl Grants {
    /// No lease yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes in the answer to heartbeat `number`, which was sent at `sent` on the local clock. An answer that was
    /// overtaken by a later one is ignored: it could only bring back a leadership that was withdrawn since.
    pub(crate) fn take(
        &self,
        number: u64,
        sent: Millis,
        lease_ms: u64,
        withdrawn: impl IntoIterator<Item = (PartitionId, Epoch)>,
    ) -> bool {
        let mut newest = self.newest.lock();
        if number <= *newest {
            return false;
        }
        *newest = number;
        let mut grant = Grant { lease: self.present.load().lease, withdrawn: BTreeMap::new() };
        grant.lease.extend(sent, lease_ms);
        for (partition, epoch) in withdrawn {
            let held = grant.withdrawn.entry(partition).or_insert(epoch);
            *held = (*held).max(epoch);
        }
        self.present.store(Arc::new(grant));
        true
    }

    /// Ends the lease for good: this incarnation is over.
    pub(crate) fn end(&self) {
        let mut newest = self.newest.lock();
        *newest = u64::MAX;
        self.present.store(Arc::new(Grant::default()));
    }

    /// Whether the lease holds at `now`, whatever it covers.
    pub(crate) fn is_valid(&self, now: Millis) -> bool {
        self.present.load().lease.is_valid(now)
    }

    /// Whether the lease covers the leadership of `partition` in `epoch` at `now`.
    pub(crate) fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        let grant = self.present.load();
        grant.lease.is_valid(now) && grant.withdrawn.get(&partition).is_none_or(|withdrawn| *withdrawn < epoch)
    }

    /// When the lease ends, if there is one.
    pub(crate) fn until(&self) -> Option<Millis> {
        self.present.load().lease.until()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::TableId;

    fn partition(index: u16) -> PartitionId {
        PartitionId::new(TableId::new(1), index)
    }

    #[test]
    fn the_lease_counts_from_sending_and_ends() {
        let grants = Grants::new();
        assert!(!grants.is_valid(Millis::new(0)));
        assert!(grants.take(1, Millis::new(100), 1_000, []));
        assert!(grants.is_valid(Millis::new(1_099)));
        assert!(!grants.is_valid(Millis::new(1_100)));
    }

    #[test]
    fn a_withdrawn_leadership_is_not_covered_and_a_late_answer_does_not_bring_it_back() {
        let grants = Grants::new();
        assert!(grants.take(2, Millis::new(100), 1_000, [(partition(1), Epoch::new(4))]));
        assert!(!grants.take(1, Millis::new(50), 1_000, []));
        let now = Millis::new(200);
        assert!(!grants.covers(partition(1), Epoch::new(4), now));
        assert!(grants.covers(partition(1), Epoch::new(5), now));
        assert!(grants.covers(partition(2), Epoch::new(4), now));
    }

    #[test]
    fn after_the_end_no_answer_counts() {
        let grants = Grants::new();
        assert!(grants.take(1, Millis::new(100), 1_000, []));
        grants.end();
        assert!(!grants.take(7, Millis::new(100), 1_000, []));
        assert!(!grants.is_valid(Millis::new(101)));
    }
}
