//! Counts of all objects, in one pass.

use crate::ranges::range_changes::RangeChange;
use crate::state::ClusterState;
use archon_types::{NodeStatus, PartitionStatus, ReplicaState};
use serde::{Deserialize, Serialize};

/// Counts of all objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Nodes believed alive.
    pub nodes_alive: u32,
    /// Nodes that were silent for too long or stopped.
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
    /// Partitions that operators have taken offline, without a leader.
    pub partitions_offline: u32,
    /// Assigned partitions with fewer in-sync copies than wanted.
    pub partitions_under_replicated: u32,
    /// Copies to be deleted, including condemned ones.
    pub placements_unloading: u32,
    /// Unfinished moves, including queued ones.
    pub migrations_running: u32,
    /// Splits and merges in progress.
    pub reshapings_running: u32,
}

/// Counts all objects, in one pass over the partitions.
pub fn counts(state: &ClusterState) -> Counts {
    let mut counts = Counts {
        migrations_running: u32::try_from(state.migrations.active_count()).unwrap_or(u32::MAX),
        reshapings_running: u32::try_from(RangeChange::count(state)).unwrap_or(u32::MAX),
        placements_unloading: u32::try_from(state.condemned.len()).unwrap_or(u32::MAX),
        ..Counts::default()
    };
    for row in state.nodes.values() {
        match row.node.status {
            NodeStatus::Alive => counts.nodes_alive += 1,
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
            PartitionStatus::Offline => counts.partitions_offline += 1,
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
