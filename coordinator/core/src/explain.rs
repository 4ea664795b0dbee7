//! Why a partition is not served, and how many of everything there are: data, not prose.

use crate::lanes::waiting_for;
use crate::migration::MigrationId;
use crate::state::ClusterState;
use archon_types::{
    Epoch, Incarnation, Millis, NodeId, NodeStatus, PartitionId, PartitionStatus, PlacementId, ReplicaState,
};
use serde::{Deserialize, Serialize};

/// One reason why a partition is not served, or not as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are named after the types they hold, which are documented.
pub enum Why {
    /// The first assignment waits for nodes.
    NotEnoughNodes { have: u64, need: u64 },
    /// The first assignment follows at once.
    AboutToBeAssigned,
    /// A leader is named and does not serve yet.
    TakingOver { node: NodeId },
    /// A copy knew an epoch that nobody had granted; leadership is being granted above it.
    EpochSurpassed { known: Epoch },
    /// The former holder's lease may still run.
    WaitingForLease { node: NodeId, incarnation: Incarnation },
    /// The only copies that count are on failed nodes: one of them must come back.
    NoLiveReplica { node: NodeId, placement: PlacementId, since: Millis },
    /// A node that holds a copy that counts has registered and not confirmed its incarnation.
    HolderRegistering { node: NodeId },
    /// A leader can be elected and follows at once.
    AboutToBeElected,
    /// No copy counts any more: only an operator can accept that the data is lost.
    DataLost,
    /// Fewer copies count than are wanted.
    UnderReplicated { have: u32, want: u32 },
    /// It is being moved, and the move waits.
    MoveWaits { migration: MigrationId, why: String },
}

/// Why a partition is not served, or not as it should be; empty when all is well. `None`: there is no such partition.
pub fn explain(state: &ClusterState, partition: PartitionId) -> Option<Vec<Why>> {
    let row = state.partitions.get(partition)?;
    let table = state.tables.get(&partition.table)?;
    let mut why = Vec::new();
    let live = row.live().count();
    match row.status {
        PartitionStatus::Unassigned => {
            let (have, need) = crate::assign::nodes_needed(state, table.replication);
            why.push(if have < need { Why::NotEnoughNodes { have, need } } else { Why::AboutToBeAssigned });
        }
        PartitionStatus::Assigned => {
            why.extend(row.leader_placement().map(|leader| Why::TakingOver { node: leader.node }))
        }
        PartitionStatus::Unavailable if live == 0 => why.push(Why::DataLost),
        PartitionStatus::Unavailable => {
            for former in state.formers.of_partition(partition).filter(|former| !former.lapsed) {
                why.push(Why::WaitingForLease { node: former.node, incarnation: former.incarnation });
            }
            for placement in row.live() {
                let Some(node) = state.node(placement.node) else { continue };
                if node.node.status != NodeStatus::Live {
                    let (node, since) = (placement.node, node.node.since);
                    why.push(Why::NoLiveReplica { node, placement: placement.id, since });
                } else if !node.is_active() {
                    why.push(Why::HolderRegistering { node: placement.node });
                }
            }
            if why.is_empty() {
                why.push(Why::AboutToBeElected);
            }
        }
        PartitionStatus::Online => {}
    }
    if let Some(known) = state.surpassed.get(&partition) {
        why.push(Why::EpochSurpassed { known: *known });
    }
    if row.status != PartitionStatus::Unassigned && live > 0 && live < usize::from(table.replication) {
        let have = u32::try_from(live).unwrap_or(u32::MAX);
        why.push(Why::UnderReplicated { have, want: u32::from(table.replication) });
    }
    if let Some(migration) = state.migrations.running(partition)
        && let Some(reason) = waiting_for(state, migration)
    {
        why.push(Why::MoveWaits { migration: migration.id, why: reason });
    }
    Some(why)
}

/// How many of everything there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Nodes believed alive.
    pub nodes_live: u32,
    /// Nodes that were silent too long or stopped.
    pub nodes_failed: u32,
    /// Nodes whose data is gone.
    pub nodes_lost: u32,
    /// Partitions of all tables.
    pub partitions: u32,
    /// Partitions whose leader serves.
    pub partitions_online: u32,
    /// Partitions with a leader that does not serve yet.
    pub partitions_assigned: u32,
    /// Partitions that have not been assigned.
    pub partitions_unassigned: u32,
    /// Partitions without a leader.
    pub partitions_unavailable: u32,
    /// Assigned partitions with fewer copies that count than are wanted.
    pub partitions_under_replicated: u32,
    /// Copies waiting to be deleted.
    pub placements_unloading: u32,
    /// Moves that are not over, queued ones included.
    pub migrations_running: u32,
}

/// Counts everything, in one pass over the partitions.
pub fn counts(state: &ClusterState) -> Counts {
    let mut counts = Counts {
        migrations_running: u32::try_from(state.migrations.active_count()).unwrap_or(u32::MAX),
        ..Counts::default()
    };
    for row in state.nodes.values() {
        match row.node.status {
            NodeStatus::Live => counts.nodes_live += 1,
            NodeStatus::Failed => counts.nodes_failed += 1,
            NodeStatus::Lost => counts.nodes_lost += 1,
        }
    }
    for row in state.partitions.iter() {
        counts.partitions += 1;
        match row.status {
            PartitionStatus::Unassigned => counts.partitions_unassigned += 1,
            PartitionStatus::Assigned => counts.partitions_assigned += 1,
            PartitionStatus::Online => counts.partitions_online += 1,
            PartitionStatus::Unavailable => counts.partitions_unavailable += 1,
        }
        let wanted = state.tables.get(&row.id.table).map_or(0, |table| usize::from(table.replication));
        if row.status != PartitionStatus::Unassigned && row.live().count() < wanted {
            counts.partitions_under_replicated += 1;
        }
        let unloading = row.placements.iter().filter(|placement| placement.state == ReplicaState::Unload).count();
        counts.placements_unloading += u32::try_from(unloading).unwrap_or(u32::MAX);
    }
    counts
}
