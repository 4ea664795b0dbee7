//! Facts by which reads at replicas are judged.

use crate::random::Random;
use archon_types::{Millis, PartitionId, PlacementId, Seq};
use std::collections::BTreeMap;

/// Facts about replicas that answer reads.
#[derive(Debug)]
pub(crate) struct ReplicaReads {
    /// Separate generator, so that other seeds do not change.
    pub(crate) random: Random,
    /// Arrivals of appends, by the local time of the receiver.
    pub(crate) arrivals: BTreeMap<(PlacementId, Millis), Arrival>,
    /// Times of sending of appends that wait until their copy is opened.
    pub(crate) early: BTreeMap<PlacementId, u64>,
    /// Commit positions of leaders as they answered clients, each higher than the one before, with their true times.
    acknowledged: BTreeMap<PartitionId, Vec<(u64, Seq)>>,
}

/// Appends that a replica received within one millisecond: true times of the first sending, and of the arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) sent: u64,
    pub(crate) came: u64,
}

impl ReplicaReads {
    pub(crate) fn new(seed: u64) -> Self {
        let random = Random::new(seed ^ 0x0433_12E5);
        Self { random, arrivals: BTreeMap::new(), early: BTreeMap::new(), acknowledged: BTreeMap::new() }
    }

    /// Records that clients know everything up to a position.
    pub(crate) fn acknowledge(&mut self, partition: PartitionId, upto: Seq, truth: u64) {
        let known = self.acknowledged.entry(partition).or_default();
        if known.last().is_none_or(|(_, before)| *before < upto) {
            known.push((truth, upto));
        }
    }

    /// Returns the highest position that clients knew before this time.
    pub(crate) fn acknowledged_before(&self, partition: PartitionId, truth: u64) -> Seq {
        let known = self.acknowledged.get(&partition).map_or(&[][..], Vec::as_slice);
        let before = known.partition_point(|(at, _)| *at < truth);
        before.checked_sub(1).map_or(Seq::ZERO, |last| known[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::TableId;

    #[test]
    fn position_known_to_clients_is_that_before_the_time() {
        let (mut reads, partition) = (ReplicaReads::new(1), PartitionId::new(TableId::new(1), 0));
        for (truth, upto) in [(10, 3), (12, 3), (20, 2), (20, 7), (20, 8)] {
            reads.acknowledge(partition, Seq::new(upto), truth);
        }
        let before = |truth| reads.acknowledged_before(partition, truth).get();
        assert_eq!([0, 10, 11, 20, 21, 99].map(before), [0, 0, 3, 3, 8, 8]);
    }
}
