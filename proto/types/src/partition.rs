//! A partition's row: which node holds which copy of it, who leads, and the keys that it has.

use crate::ids::{Epoch, NodeId, PartitionId, PlacementId, Version};
use crate::key_range::KeyRange;
use crate::limits::EPOCHS_AHEAD_MAX;
use crate::merge::Merge;
use crate::split::Split;
use crate::word::words;
use serde::{Deserialize, Serialize};

words! {
    /// What a replica is to its partition.
    #[derive(Serialize, Deserialize)]
    pub enum ReplicaState: "state of a copy" {
        /// Copying; does not count.
        Load = "load",
        /// In sync; holds every acknowledged write durably; counts.
        Live = "live",
        /// To be deleted.
        Unload = "unload",
    }
}

/// One copy of one partition on one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Placement {
    /// Its number, never reused.
    pub id: PlacementId,
    /// The node that holds it.
    pub node: NodeId,
    /// What it is to its partition.
    pub state: ReplicaState,
}

words! {
    /// Where a partition stands in its life.
    #[derive(Serialize, Deserialize)]
    pub enum PartitionStatus: "partition status" {
        /// No placement yet: too few nodes have registered.
        Unassigned = "unassigned",
        /// A leader is named and has not yet said that it serves.
        Assigned = "assigned",
        /// The leader serves.
        Online = "online",
        /// No leader: no Live replica is reachable.
        Unavailable = "unavailable",
        /// No leader, for an operator has taken it offline.
        Offline = "offline",
    }
}

/// A partition's row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// Which partition.
    pub id: PartitionId,
    /// Generation of its leadership.
    pub epoch: Epoch,
    /// Log index of the row's last change.
    pub version: Version,
    /// The placement that leads, always one of the Live ones.
    pub leader: Option<PlacementId>,
    /// Every copy, in order of placement id.
    pub placements: Vec<Placement>,
    /// Where it stands.
    pub status: PartitionStatus,
    /// The least Live replicas with which new writes are admitted; part of the versioned configuration
    /// (PROTOCOL rule 7).
    pub min_in_sync: u8,
    /// The keys that it has: all in a table whose keys are hashed, where the hash says which are its own. In a table by ranges
    /// each key is in the range of one partition.
    pub range: KeyRange,
    /// Its split, while one is under way: it keeps its keys until that is done.
    pub split: Option<Box<Split>>,
    /// Its merge with a neighbour, while one is under way.
    pub merge: Option<Box<Merge>>,
    /// The last merge whose keys it has: a copy shows them only if its log has come that far (PROTOCOL rule 48). Zero if it
    /// never got any.
    pub absorbed: Version,
}

impl Partition {
    /// Whether it is being split, or takes part in a merge.
    pub fn is_reshaped(&self) -> bool {
        self.split.is_some() || self.merge.is_some()
    }

    /// Whether an epoch can be true, as far as whoever knows this row can tell: at most [`EPOCHS_AHEAD_MAX`] above the row's.
    pub fn may_reach(&self, epoch: Epoch) -> bool {
        epoch.get().saturating_sub(self.epoch.get()) <= EPOCHS_AHEAD_MAX
    }

    /// The placement with this id.
    pub fn placement(&self, id: PlacementId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.id == id)
    }

    /// The copy on this node, if there is one. Two copies of a partition never share a node.
    pub fn placement_on(&self, node: NodeId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.node == node)
    }

    /// The placement that leads.
    pub fn leader_placement(&self) -> Option<&Placement> {
        self.leader.and_then(|id| self.placement(id))
    }

    /// The copies that are in sync.
    pub fn live(&self) -> impl Iterator<Item = &Placement> {
        self.placements.iter().filter(|placement| placement.state == ReplicaState::Live)
    }
}
