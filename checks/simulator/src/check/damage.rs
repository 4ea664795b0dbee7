//! Damage of disks: marks the partitions that had a copy on a damaged disk, and those given one before its machine
//! registers again, since the coordinator cannot know.

use archon_coordinator_core::ClusterState;
use archon_types::{Incarnation, PartitionId, PlacementId, StorageId};
use std::collections::{BTreeMap, BTreeSet};

/// Damaged directories and the partitions they affect.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    reached: BTreeSet<PartitionId>,
    /// Each damaged directory with its last undamaged incarnation; `None`, for directories that are gone or were never
    /// registered, means every incarnation.
    directories: BTreeMap<StorageId, Option<Incarnation>>,
}

impl Damage {
    /// Records a directory that was rolled back or is permanently lost.
    pub(crate) fn directory(&mut self, state: &ClusterState, storage: StorageId, is_gone: bool) {
        let last = state.node_by_storage(storage).map(|row| row.node.incarnation).filter(|_| !is_gone);
        self.directories.insert(storage, last);
        self.look(state);
    }

    /// Records a copy with lost files.
    pub(crate) fn placement(&mut self, state: &ClusterState, lost: PlacementId) {
        let of = state.partitions.iter().filter(|row| row.placement(lost).is_some());
        self.reached.extend(of.map(|row| row.id));
        // A half that is split off is no partition yet.
        let split = state.partitions.iter().filter_map(|row| Some((row.id, row.split.as_deref()?)));
        let split = split.filter(|(_, split)| split.copies.iter().any(|copy| copy.id == lost));
        self.reached.extend(split.map(|(left, split)| split.right_of(left)));
    }

    /// Recomputes the affected partitions; to be called whenever rows have changed.
    pub(super) fn look(&mut self, state: &ClusterState) {
        for (storage, last) in &self.directories {
            let Some(node) = state.node_by_storage(*storage) else { continue };
            // Messages of the former incarnation may still take effect after the damage.
            if last.is_none_or(|last| node.activated.is_none_or(|activated| activated <= last)) {
                self.reached.extend(state.partitions.on_node(node.node.id).map(|row| row.id));
            }
        }
    }

    /// Marks a partition that took over data of an affected one.
    pub(super) fn reaches(&mut self, partition: PartitionId) {
        self.reached.insert(partition);
    }

    /// Returns true if damage affected this partition: acknowledged writes may be lost.
    pub(crate) fn reached(&self, partition: PartitionId) -> bool {
        self.reached.contains(&partition)
    }
}
