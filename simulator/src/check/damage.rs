//! Which partitions a damaged disk concerns: those that had a copy there, and those that are given one before its machine
//! registers again, for the coordinator cannot know.

use archon_coordinator_core::ClusterState;
use archon_types::{Incarnation, PartitionId, PlacementId, StorageId};
use std::collections::{BTreeMap, BTreeSet};

/// What damage there was, and whom it reached.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    reached: BTreeSet<PartitionId>,
    /// Each damaged directory with the last life of before; of a directory that is gone, and of one that was never
    /// registered, every life.
    directories: BTreeMap<StorageId, Option<Incarnation>>,
}

impl Damage {
    /// A directory is set back, or gone for good.
    pub(crate) fn directory(&mut self, state: &ClusterState, storage: StorageId, is_gone: bool) {
        let last = state.node_by_storage(storage).map(|row| row.node.incarnation).filter(|_| !is_gone);
        self.directories.insert(storage, last);
        self.look(state);
    }

    /// The files of one copy are gone.
    pub(crate) fn placement(&mut self, state: &ClusterState, lost: PlacementId) {
        let of = state.partitions.iter().filter(|row| row.placement(lost).is_some());
        self.reached.extend(of.map(|row| row.id));
        // One that is split off is no partition yet.
        let split = state.partitions.iter().filter_map(|row| Some((row.id, row.split.as_deref()?)));
        let split = split.filter(|(_, split)| split.copies.iter().any(|copy| copy.id == lost));
        self.reached.extend(split.map(|(left, split)| split.right_of(left)));
    }

    /// Looks again whom the damaged directories concern; to be called whenever rows have changed.
    pub(super) fn look(&mut self, state: &ClusterState) {
        for (storage, last) in &self.directories {
            let Some(node) = state.node_by_storage(*storage) else { continue };
            // What the former life still had under way may become true after the damage.
            if last.is_none_or(|last| node.activated.is_none_or(|activated| activated <= last)) {
                self.reached.extend(state.partitions.on_node(node.node.id).map(|row| row.id));
            }
        }
    }

    /// It has what was another partition's, which damage reached.
    pub(super) fn reaches(&mut self, partition: PartitionId) {
        self.reached.insert(partition);
    }

    /// Whether damage reached this partition: what it had acknowledged may be gone.
    pub(crate) fn reached(&self, partition: PartitionId) -> bool {
        self.reached.contains(&partition)
    }
}
