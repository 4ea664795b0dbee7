//! Placements of this node, and the state of each.

use archon_host::{HeldPlacement, HeldState};
use archon_types::{PartitionId, PlacementId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The node's placements; written by recovery, pushes and shards.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    held: Mutex<BTreeMap<PlacementId, HeldPlacement>>,
}

impl Holdings {
    /// Starts with what recovery found.
    pub(crate) fn new(held: BTreeMap<PlacementId, HeldPlacement>) -> Self {
        Self { held: Mutex::new(held) }
    }

    /// Returns a clone of all entries.
    pub(crate) fn all(&self) -> BTreeMap<PlacementId, HeldPlacement> {
        self.held.lock().clone()
    }

    /// Returns the partition that a placement is a copy of.
    pub(crate) fn partition_of(&self, placement: PlacementId) -> Option<PartitionId> {
        self.held.lock().get(&placement).map(|held| held.partition)
    }

    /// Records the state of a placement.
    pub(crate) fn set(&self, placement: PlacementId, partition: PartitionId, state: HeldState) {
        self.held.lock().insert(placement, HeldPlacement { partition, state });
    }

    /// Reverts [`Holdings::set`], unless the placement has changed meanwhile.
    pub(crate) fn take_back(&self, placement: PlacementId, noted: HeldState, before: Option<&HeldPlacement>) {
        let mut held = self.held.lock();
        if held.get(&placement).is_some_and(|held| held.state == noted) {
            match before {
                Some(before) => held.insert(placement, before.clone()),
                None => held.remove(&placement),
            };
        }
    }

    /// Returns the partition that a placement is a copy of, if it is held whole.
    pub(crate) fn whole_copy_of(&self, placement: PlacementId) -> Option<PartitionId> {
        let held = self.held.lock();
        let whole = held.get(&placement).filter(|held| is_whole(held));
        whole.map(|held| held.partition)
    }

    /// Records that a copy was formed and is held from here on, unless a duty to host it has recorded that already. A
    /// start has removed the remains of an interrupted attempt to form it.
    pub(crate) fn note_formed(&self, placement: PlacementId, partition: PartitionId) {
        let mut held = self.held.lock();
        if held.get(&placement).is_none_or(|held| held.state == HeldState::Damaged) {
            held.insert(placement, HeldPlacement { partition, state: HeldState::SetAside });
        }
    }

    /// Removes a placement.
    pub(crate) fn remove(&self, placement: PlacementId) {
        self.held.lock().remove(&placement);
    }

    /// Returns the placements held whole, as a registration lists them.
    pub(crate) fn whole(&self) -> Vec<PlacementId> {
        let held = self.held.lock();
        held.iter().filter(|(_, held)| is_whole(held)).map(|(placement, _)| *placement).collect()
    }

    /// Returns their number.
    pub(crate) fn len(&self) -> usize {
        self.held.lock().len()
    }
}

const fn is_whole(held: &HeldPlacement) -> bool {
    matches!(held.state, HeldState::SetAside | HeldState::Active)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_host::{Action, UNKNOWN, reconcile};
    use archon_types::{
        Duty, Epoch, KeyRange, NodeId, Partition, PartitionStatus, Placement, ReplicaState, TableId, Version,
    };

    #[test]
    fn formed_copy_replaces_damaged_remains() {
        let (copy, right, node) = (PlacementId::new(20), PartitionId::new(TableId::new(1), 1), NodeId::new(1));
        let found = HeldPlacement { partition: UNKNOWN, state: HeldState::Damaged };
        let holdings = Holdings::new(BTreeMap::from([(copy, found)]));
        holdings.note_formed(copy, right);
        assert_eq!(holdings.whole_copy_of(copy), Some(right), "whoever has left's partition waits for this word");
        let row = Partition {
            id: right,
            epoch: Epoch::new(2),
            version: Version::new(9),
            leader: Some(copy),
            placements: vec![Placement { id: copy, node, state: ReplicaState::Live }],
            status: PartitionStatus::Assigned,
            min_in_sync: 1,
            range: KeyRange { begin: "m".into(), end: None },
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        };
        let duty = Duty::Host { partition: row, placement: copy };
        let actions = reconcile(node, &holdings.all(), &[duty], Default::default()).actions;
        assert!(matches!(actions[..], [Action::Open { fresh: false, .. }]), "{actions:?}");
        holdings.set(copy, right, HeldState::Active);
        holdings.note_formed(copy, right);
        assert!(holdings.all().values().all(|held| held.state == HeldState::Active), "it was opened meanwhile");
    }
}
