//! The state begins anew from less than a majority: from what a survivor holds, or from a file.
//!
//! Entries may be lost that nodes have acted upon, so nothing of this state is taken for true until they were heard
//! (PROTOCOL rules 60 to 62). [`begin_generation`] makes the new state; nodes register with it, set all their copies aside and tell where
//! the log of each ends; [`doubts()`] says what keeps it from going on; `settled` says which copies of a partition count then.
//!
//! | file | holds |
//! |---|---|
//! | `begin` | the state as a new generation begins with it |
//! | `directory` | whether a node's data directory is an older copy |
//! | `doubts` | what is not known yet, and what cannot be known |
//! | `takeover` | when a generation begins to take members from the former coordinators |
//! | `settled` | which copies count, and from which the partition goes on |

mod begin;
mod directory;
mod doubts;
mod settled;
mod takeover;

pub use begin::{RecoveryError, begin_generation};
pub use directory::DirectoryRecord;
pub use doubts::{Doubt, doubts};
pub(crate) use settled::{Choice, choose};
pub use takeover::{FormerAnswer, FormerFacts, FormerRound, Takeover, TakeoverStep};

use crate::mutant::Mutant;
use crate::state::ClusterState;
use archon_types::{
    Epoch, Incarnation, Millis, NodeId, NodeStatus, PartitionId, PlacementId, Position, Version, generation_of,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is known while the state is not taken for true yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// When it began, on the wall clock of whoever began it.
    pub begun: Millis,
    /// The last entry of the log that the state holds; what came after it is lost.
    pub base: Version,
    /// Who led the partitions that hold data, and in which epoch, as of that entry.
    pub leaders: BTreeMap<PartitionId, (Epoch, PlacementId)>,
    /// What each node told that registered since.
    pub inventories: BTreeMap<NodeId, Inventory>,
    /// An operator wants to go on although something may be lost.
    pub accepted: bool,
    /// The first generation that began since the state was settled last: above it, if recoveries began one amid another.
    #[serde(default)]
    pub unsettled_since: u64,
    /// The bases of earlier recoveries that were not settled, by their generations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub earlier_bases: BTreeMap<u64, Version>,
    /// What the state of such a recovery lacked, as [`Recovery::behind`] returned it.
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
    /// This generation takes the place of those before: their coordinators end when they hear of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_over: bool,
}

/// What one node holds, as it told in one life.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inventory {
    /// In which life.
    pub incarnation: Incarnation,
    /// The highest version that it was told of before.
    pub told: Version,
    /// Its directory is from before the node's last life ahead of the recovery: its copies lack something.
    pub older: bool,
    /// It has lived in another history than the one that this state continues: what it holds was written there, and does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_history: bool,
    /// The copies that it holds whole, each with what it is once the node told.
    pub copies: BTreeMap<PlacementId, Option<Standing>>,
}

/// A copy that takes nothing in any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// Of which partition it is.
    pub partition: PartitionId,
    /// The highest epoch that it has persisted.
    pub promised: Epoch,
    /// Where its log ends.
    pub last: Position,
}

impl Inventory {
    /// Returns true if its copies may count: its directory is the one that acted last before the recovery, in this history.
    pub const fn counts(&self) -> bool {
        !self.older && !self.other_history
    }

    /// Whether the node told of everything that it holds.
    pub fn is_complete(&self) -> bool {
        self.copies.values().all(Option::is_some)
    }
}

impl Recovery {
    /// Returns the node with the latest version that this state lacks, and that version.
    pub fn behind(&self) -> Option<(NodeId, Version)> {
        // What it was told elsewhere is nothing that this state could have.
        let here = self.inventories.iter().filter(|(_, inventory)| !inventory.other_history);
        let told = here.map(|(node, inventory)| (*node, inventory.told));
        told.filter(|(_, told)| self.lacks(*told)).chain(self.lacked).max_by_key(|(_, told)| *told)
    }

    /// Returns true if the state lacks changes up to this version. A recovery amid another one continues its state, which may have lacked
    /// the end of the generation before.
    fn lacks(&self, version: Version) -> bool {
        let generation = generation_of(version.get());
        let mut earlier = self.earlier_bases.iter();
        version > self.base || earlier.any(|(begun, base)| generation < *begun && version > *base)
    }

    /// The nodes that have lived in another history than the one that this state continues.
    pub fn of_other_histories(&self) -> impl Iterator<Item = NodeId> {
        self.inventories.iter().filter(|(_, inventory)| inventory.other_history).map(|(node, _)| *node)
    }

    /// The nodes that came with an older copy of their data directory.
    pub fn with_older_directories(&self) -> impl Iterator<Item = NodeId> {
        self.inventories.iter().filter(|(_, inventory)| inventory.older).map(|(node, _)| *node)
    }

    /// Whether something may be lost, which an operator is to accept.
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

    /// The committed facts about the former coordinators.
    pub const fn former_facts(&self) -> FormerFacts {
        FormerFacts { worked: self.former_worked, taken_over: self.has_taken_over() }
    }

    /// Whether nothing is left to wait for: all nodes that are not given up were heard, and an operator has accepted what may be lost
    /// if anything may.
    pub(crate) fn settles(&self, state: &ClusterState) -> bool {
        let heard = unheard(state, self).next().is_none() && (!self.may_lose() || self.accepted);
        (heard && self.has_taken_over()) || state.breaks(Mutant::SettledUnheard)
    }

    /// Whether this life of a node holds a copy of which it has not told yet.
    pub fn awaits(&self, node: NodeId, incarnation: Incarnation, placement: PlacementId) -> bool {
        let inventory = self.inventories.get(&node).filter(|inventory| inventory.incarnation == incarnation);
        inventory.is_some_and(|inventory| inventory.copies.get(&placement) == Some(&None))
    }

    /// The copies that may count, by partition: each with its node.
    pub(crate) fn standings(&self) -> BTreeMap<PartitionId, Vec<(PlacementId, NodeId, Standing)>> {
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

/// The nodes that have not told everything yet, and are not given up.
pub fn unheard<'a>(state: &'a ClusterState, recovery: &'a Recovery) -> impl Iterator<Item = NodeId> + 'a {
    let nodes = state.nodes.values().filter(|row| row.node.status != NodeStatus::Lost);
    let heard = |node| recovery.inventories.get(&node).is_some_and(Inventory::is_complete);
    nodes.map(|row| row.node.id).filter(move |node| !heard(*node))
}
