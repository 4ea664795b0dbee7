//! What the coordinator has granted a registration of the node: the lease, and the leaderships it does not cover
//! (PROTOCOL rules 14 and 15).

use crate::mutant::{Broken, Mutant};
use archon_types::{Epoch, Lease, Millis, PartitionId};
use std::collections::BTreeMap;

/// What one registration was granted. It begins with no lease, and ends for good.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    lease: Lease,
    /// Leaderships that the lease does not cover: those in these epochs and before.
    withdrawn: BTreeMap<PartitionId, Epoch>,
    /// Number of the newest heartbeat whose answer was taken in.
    newest: u64,
    broken: Broken,
}

impl Grants {
    /// Nothing is granted yet.
    pub fn new(broken: Broken) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Takes in the answer to heartbeat `number`, which was sent at `sent` on the local clock. Returns the leaderships that it
    /// withdraws, to be given up; `None` if it does not count: one that was overtaken by a later one could only bring back a
    /// leadership that was withdrawn since.
    pub fn take(
        &mut self,
        number: u64,
        sent: Millis,
        lease_ms: u64,
        withdrawn: Vec<(PartitionId, Epoch)>,
    ) -> Option<Vec<(PartitionId, Epoch)>> {
        if number <= self.newest {
            return None;
        }
        let withdrawn = if self.broken.breaks(Mutant::NodeWideLease) { Vec::new() } else { withdrawn };
        self.newest = number;
        self.lease.extend(sent, lease_ms);
        self.withdrawn.clear();
        for (partition, epoch) in &withdrawn {
            let held = self.withdrawn.entry(*partition).or_insert(*epoch);
            *held = (*held).max(*epoch);
        }
        Some(withdrawn)
    }

    /// Ends the lease for good: the registration is over, and no answer to it counts any more.
    pub fn end(&mut self) {
        *self = Self { newest: u64::MAX, ..Self::default() };
    }

    /// Whether the lease holds at `now`, whatever it covers.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.lease.is_valid(now)
    }

    /// Whether the lease covers the leadership of `partition` in `epoch` at `now`.
    pub fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.lease.is_valid(now) && self.withdrawn.get(&partition).is_none_or(|withdrawn| *withdrawn < epoch)
    }

    /// When the lease ends, if there is one.
    pub fn until(&self) -> Option<Millis> {
        self.lease.until()
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
        let mut grants = Grants::default();
        assert!(!grants.is_valid(Millis::new(0)));
        assert!(grants.take(1, Millis::new(100), 1_000, vec![]).is_some());
        assert!(grants.is_valid(Millis::new(1_099)));
        assert!(!grants.is_valid(Millis::new(1_100)));
    }

    fn what_is_withdrawn_is_not_covered(mutant: Option<Mutant>) -> bool {
        let mut grants = Grants::new(Broken::by(mutant));
        grants.take(1, Millis::new(100), 1_000, vec![(partition(1), Epoch::new(4))]);
        !grants.covers(partition(1), Epoch::new(4), Millis::new(200))
    }

    archon_types::shown_by! {
        NodeWideLease => what_is_withdrawn_is_not_covered,
    }

    #[test]
    fn a_withdrawn_leadership_is_not_covered_and_a_late_answer_does_not_bring_it_back() {
        let mut grants = Grants::default();
        assert!(grants.take(2, Millis::new(100), 1_000, vec![(partition(1), Epoch::new(4))]).is_some());
        assert_eq!(grants.take(1, Millis::new(50), 1_000, vec![]), None);
        let now = Millis::new(200);
        assert!(!grants.covers(partition(1), Epoch::new(4), now));
        assert!(grants.covers(partition(1), Epoch::new(5), now));
        assert!(grants.covers(partition(2), Epoch::new(4), now));
    }

    #[test]
    fn after_the_end_no_answer_counts() {
        let mut grants = Grants::default();
        assert!(grants.take(1, Millis::new(100), 1_000, vec![]).is_some());
        grants.end();
        assert_eq!(grants.take(7, Millis::new(100), 1_000, vec![]), None);
        assert!(!grants.is_valid(Millis::new(101)));
    }
}
