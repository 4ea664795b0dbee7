//! Facts of a state that is not trusted yet, as a recovery from less than a majority collects them.

use archon_types::{Epoch, Incarnation, Millis, NodeId, PartitionId, PlacementId, Position, Version, generation_of};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Facts of a state that is not trusted yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// Start time, on the wall clock of the founder.
    pub begun: Millis,
    /// The last entry of the log in the state; later ones are lost.
    pub base: Version,
    /// Leaders of the partitions with data, and their epochs, as of that entry.
    pub leaders: BTreeMap<PartitionId, (Epoch, PlacementId)>,
    /// Report of each node that registered since.
    pub inventories: BTreeMap<NodeId, Inventory>,
    /// True if an operator has accepted possible losses.
    pub accepted: bool,
    /// The first generation that began since the state was settled last: above it, if one recovery began during
    /// another.
    #[serde(default)]
    pub unsettled_since: u64,
    /// The bases of earlier recoveries that were not settled, by their generations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub earlier_bases: BTreeMap<u64, Version>,
    /// Changes that the state of such a recovery lacked, as [`Recovery::behind`] returned them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacked: Option<(NodeId, Version)>,
    /// The records by which older copies of data directories are detected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub directories: BTreeMap<NodeId, DirectoryRecord>,
    /// The coordinators of the generations before, each with its number and address, as the recovered directory names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<(u64, String)>,
    /// One of them answered that it works with a majority: this generation takes over by an operator's order only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub former_worked: bool,
    /// This generation takes the place of those before: their coordinators end when they learn of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
}

/// Holdings of one node, as reported in one incarnation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inventory {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The highest version that the node knew before.
    pub told: Version,
    /// Its directory is from before the node's last incarnation ahead of the recovery: its replicas lack data.
    pub older: bool,
    /// It has lived in another history than the one that this state continues: its holdings were written there, and do
    /// not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_history: bool,
    /// The complete replicas that it holds, each with its details once the node has reported them.
    pub copies: BTreeMap<PlacementId, Option<FrozenReplica>>,
}

/// A replica that accepts nothing any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FrozenReplica {
    /// Its partition.
    pub partition: PartitionId,
    /// The highest epoch that it has persisted.
    pub promised: Epoch,
    /// End of its log.
    pub last: Position,
}

impl Inventory {
    /// Returns true if its copies may count: its directory is the one that acted last before the recovery, in this history.
    pub const fn counts(&self) -> bool {
        !self.older && !self.other_history
    }

    /// Returns true if the node has reported everything that it holds.
    pub fn is_complete(&self) -> bool {
        self.copies.values().all(Option::is_some)
    }
}

impl Recovery {
    /// Returns the node with the latest version that this state lacks, and that version.
    pub fn behind(&self) -> Option<(NodeId, Version)> {
        // Versions of another history are unknown here.
        let here = self.inventories.iter().filter(|(_, inventory)| !inventory.other_history);
        let told = here.map(|(node, inventory)| (*node, inventory.told));
        told.filter(|(_, told)| self.lacks(*told)).chain(self.lacked).max_by_key(|(_, told)| *told)
    }

    /// Returns true if the state lacks changes up to this version. A recovery during another one continues its state,
    /// which may have lacked the end of the generation before.
    fn lacks(&self, version: Version) -> bool {
        let generation = generation_of(version.get());
        let mut earlier = self.earlier_bases.iter();
        version > self.base || earlier.any(|(begun, base)| generation < *begun && version > *base)
    }

    /// Returns the nodes that have lived in another history than the one that this state continues.
    pub fn of_other_histories(&self) -> impl Iterator<Item = NodeId> {
        self.inventories.iter().filter(|(_, inventory)| inventory.other_history).map(|(node, _)| *node)
    }

    /// Returns the nodes that came with an older copy of their data directory.
    pub fn with_older_directories(&self) -> impl Iterator<Item = NodeId> {
        self.inventories.iter().filter(|(_, inventory)| inventory.older).map(|(node, _)| *node)
    }

    /// Returns true if data may be lost, which an operator is to accept.
    pub(crate) fn may_lose(&self) -> bool {
        self.behind().is_some()
            || self.of_other_histories().next().is_some()
            || self.with_older_directories().next().is_some()
    }

    /// Returns false while this generation takes no member, settles nothing and grants nothing, because former coordinators may work
    /// (PROTOCOL rule 60).
    pub const fn has_taken_over(&self) -> bool {
        self.taken_over || self.former.is_empty()
    }

    /// Returns true if this incarnation of a node holds a replica that it has not reported yet.
    pub fn awaits(&self, node: NodeId, incarnation: Incarnation, placement: PlacementId) -> bool {
        let inventory = self.inventories.get(&node).filter(|inventory| inventory.incarnation == incarnation);
        inventory.is_some_and(|inventory| inventory.copies.get(&placement) == Some(&None))
    }

    /// Returns the replicas that may count, by partition: each with its node.
    pub(crate) fn standings(&self) -> BTreeMap<PartitionId, Vec<(PlacementId, NodeId, FrozenReplica)>> {
        let mut by_partition: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (node, inventory) in self.inventories.iter().filter(|(_, inventory)| inventory.counts()) {
            for (placement, standing) in &inventory.copies {
                let Some(standing) = standing else { continue };
                by_partition.entry(standing.partition).or_default().push((*placement, *node, *standing));
            }
        }
        by_partition
    }
}

/// The incarnations of one node by which an older copy of its data directory is detected.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DirectoryRecord {
    /// The last incarnation that can have written data, as far as is known: the last one that was activated before the
    /// recovery, or a later one of an earlier generation in which a directory was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acted: Option<Incarnation>,
    /// Incarnations since the recovery in which the node had a directory that lacks nothing of `acted`, and those in
    /// which it came with one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub whole: BTreeSet<Incarnation>,
    /// The last incarnation of each generation since the recovery that was registered, or in which a complete directory
    /// was last used.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub known: BTreeSet<Incarnation>,
}
