//! Row of a partition: its replicas, leader and keys.

use crate::admin::open_enum::words;
use crate::common::limits::EPOCHS_AHEAD_MAX;
use crate::ids::{Epoch, NodeId, PartitionId, PlacementId, Version};
use crate::tables::key_range::KeyRange;
use crate::tables::merge::Merge;
use crate::tables::split::Split;
use serde::{Deserialize, Serialize};

words! {
    /// State of a replica in its partition.
    #[derive(Serialize, Deserialize)]
    pub enum ReplicaState: "replica state" {
        /// Being loaded; not in sync.
        Load = "load",
        /// In sync: holds every acknowledged write durably.
        Live = "live",
        /// To be deleted.
        Unload = "unload",
    }
}

/// One replica of one partition on one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Placement {
    /// Number, never reused.
    pub id: PlacementId,
    /// Node that holds it.
    pub node: NodeId,
    /// State in its partition.
    pub state: ReplicaState,
}

words! {
    /// Status of a partition.
    #[derive(Serialize, Deserialize)]
    pub enum PartitionStatus: "partition status" {
        /// No placement yet: too few nodes have registered.
        Unassigned = "unassigned",
        /// A leader is assigned and has not reported yet that it serves.
        Assigned = "assigned",
        /// The leader serves.
        Online = "online",
        /// No leader: no Live replica is reachable.
        Unavailable = "unavailable",
        /// No leader: an operator took it offline.
        Offline = "offline",
    }
}

/// A partition's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// Id of the partition.
    pub id: PartitionId,
    /// Epoch of its leadership.
    pub epoch: Epoch,
    /// Log index of the row's last change.
    pub version: Version,
    /// Leading placement, always one of the Live ones.
    pub leader: Option<PlacementId>,
    /// Every replica, in order of placement id.
    pub placements: Vec<Placement>,
    /// Status.
    pub status: PartitionStatus,
    /// Minimum number of Live replicas for new writes; part of the versioned configuration (PROTOCOL rule 7).
    pub min_in_sync: u8,
    /// Keys of the partition: all keys in a hashed table, where the hash decides which are its own. In a table by
    /// ranges each key is in the range of one partition.
    pub range: KeyRange,
    /// Split in progress; the partition keeps its keys until it is done.
    pub split: Option<Box<Split>>,
    /// Merge with a neighbour in progress.
    pub merge: Option<Box<Merge>>,
    /// Last merge that gave it keys: a replica serves them only once its log has reached that merge (PROTOCOL rule
    /// 48). Zero if there was none.
    pub absorbed: Version,
}

impl Partition {
    /// Returns true if it is being split or takes part in a merge.
    pub fn is_reshaped(&self) -> bool {
        self.split.is_some() || self.merge.is_some()
    }

    /// Returns true if an epoch is plausible given this row: at most [`EPOCHS_AHEAD_MAX`] above the row's.
    pub fn may_reach(&self, epoch: Epoch) -> bool {
        epoch.get().saturating_sub(self.epoch.get()) <= EPOCHS_AHEAD_MAX
    }

    /// Returns the placement with this id.
    pub fn placement(&self, id: PlacementId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.id == id)
    }

    /// Returns the replica on this node, if there is one. Two replicas of a partition never share a node.
    pub fn placement_on(&self, node: NodeId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.node == node)
    }

    /// Returns the leading placement.
    pub fn leader_placement(&self) -> Option<&Placement> {
        self.leader.and_then(|id| self.placement(id))
    }

    /// Returns the replicas that are in sync.
    pub fn live(&self) -> impl Iterator<Item = &Placement> {
        self.placements.iter().filter(|placement| placement.state == ReplicaState::Live)
    }
}
