//! Doubts about a recovered state, which block its use: missing reports, and losses that an operator has to accept.

use super::{Choice, choose};
use crate::quorum::recovery::reports::unheard;
use crate::state::ClusterState;
use crate::state::recovery::Inventory;
use archon_types::{NodeId, PartitionId, TableId, Version};

/// A missing fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Doubt {
    /// A node has not reported its replicas. The recovery waits until it does, or is declared lost.
    Unheard {
        /// The node.
        node: NodeId,
        /// Number of its replicas not reported yet; `None` if it has not registered.
        copies: Option<usize>,
    },
    /// A node knows of changes that this state lacks: their content is unknown, except as far as replicas show it.
    Behind {
        /// The node with the latest version.
        node: NodeId,
        /// That version.
        told: Version,
    },
    /// A node has lived in another history than the one that this state continues, in a generation that was begun from
    /// another state.
    OtherHistory {
        /// The node.
        node: NodeId,
    },
    /// A node came with an older copy of its data directory, which lacks its last writes.
    Older {
        /// The node.
        node: NodeId,
    },
    /// Partitions of a table are ranges of keys, which may have been split or merged by changes that this state lacks:
    /// then keys are missing in it, or older values return.
    Ranges {
        /// The table.
        table: TableId,
    },
    /// No node holds a replica of a partition that was served, as far as this state knows: it was moved or dropped by a
    /// missing change, or it is lost.
    NoCopy {
        /// The partition.
        partition: PartitionId,
    },
    /// A node holds replicas of partitions unknown to this state: they stay there, and are not served.
    Unknown {
        /// The node.
        node: NodeId,
        /// Number of these replicas.
        copies: usize,
    },
    /// The replica with the most entries knows an earlier leadership than another one: reads answered since may be undone.
    Contested {
        /// The partition.
        partition: PartitionId,
    },
}

impl Doubt {
    /// Returns true if an operator may accept it; a silent node must report or be declared lost.
    pub const fn may_be_accepted(&self) -> bool {
        !matches!(self, Self::Unheard { .. })
    }
}

/// Returns all doubts of a state in recovery, first those that cannot be accepted; none for other states.
pub fn doubts(state: &ClusterState) -> Vec<Doubt> {
    let Some(recovery) = state.recovery.as_deref() else { return Vec::new() };
    let told = |node| {
        let open = |inventory: &Inventory| inventory.copies.values().filter(|standing| standing.is_none()).count();
        recovery.inventories.get(&node).map(open)
    };
    let mut doubts: Vec<Doubt> =
        unheard(state, recovery).map(|node| Doubt::Unheard { node, copies: told(node) }).collect();
    if !recovery.may_lose() {
        return doubts;
    }
    doubts.extend(recovery.of_other_histories().map(|node| Doubt::OtherHistory { node }));
    doubts.extend(recovery.with_older_directories().map(|node| Doubt::Older { node }));
    doubts.extend(recovery.behind().map(|(node, told)| Doubt::Behind { node, told }));
    doubts.extend(
        state.data_tables().filter(|table| table.keys.is_range()).map(|table| Doubt::Ranges { table: table.id }),
    );
    let standings = recovery.standings();
    for row in state.data_rows() {
        let told = standings.get(&row.id).map_or(&[][..], Vec::as_slice);
        match choose(recovery.leaders.get(&row.id).copied(), told) {
            None if row.live().next().is_some() && !state.untouched.contains(&row.id) => {
                doubts.push(Doubt::NoCopy { partition: row.id });
            }
            Some(Choice { contested: true, .. }) => doubts.push(Doubt::Contested { partition: row.id }),
            _ => {}
        }
    }
    for (node, inventory) in &recovery.inventories {
        let strange = |partition: PartitionId| state.partitions.get(partition).is_none();
        let copies = inventory.copies.values().flatten().filter(|standing| strange(standing.partition)).count();
        if copies > 0 {
            doubts.push(Doubt::Unknown { node: *node, copies });
        }
    }
    doubts
}
