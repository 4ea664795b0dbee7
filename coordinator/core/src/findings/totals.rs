//! Counts of all objects for frequent callers: taken from indexes, so that a large healthy cluster costs little.

use crate::placement::migrate::phase;
use crate::state::ClusterState;
use archon_types::{MovePhase, NodeStatus, PartitionStatus};

/// Counts of all objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Nodes, each by its status.
    pub nodes: Vec<(NodeStatus, u64)>,
    /// Participants, likewise.
    pub participants: Vec<(NodeStatus, u64)>,
    /// Partitions of all tables, each by its status.
    pub partitions: Vec<(PartitionStatus, u64)>,
    /// Assigned partitions with fewer in-sync copies than wanted.
    pub under_replicated: u64,
    /// Unfinished moves, each by its phase.
    pub moves: Vec<(MovePhase, u64)>,
    /// Condemned copies that are not deleted yet.
    pub copies_condemned: u64,
}

impl Totals {
    /// Phases of unfinished moves.
    pub const OPEN_PHASES: [MovePhase; 5] =
        [MovePhase::Queued, MovePhase::Copying, MovePhase::InSync, MovePhase::HandOver, MovePhase::Cleanup];

    /// Counts the members, the unhealthy partitions, and the running moves.
    pub fn of(state: &ClusterState) -> Self {
        let by_status = |statuses: &mut dyn Iterator<Item = NodeStatus>| count(NodeStatus::ALL, statuses);
        let nodes = by_status(&mut state.nodes.values().map(|row| row.node.status));
        let participants = state.members().filter(|row| row.participant.is_some());
        Self {
            nodes,
            participants: by_status(&mut participants.map(|row| row.node.status)),
            partitions: partitions(state),
            under_replicated: under_replicated(state),
            moves: moves(state),
            copies_condemned: state.condemned.len() as u64,
        }
    }
}

fn count<T: Copy + PartialEq>(all: &[T], found: &mut dyn Iterator<Item = T>) -> Vec<(T, u64)> {
    let mut counts: Vec<(T, u64)> = all.iter().map(|one| (*one, 0)).collect();
    for one in found {
        if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == one) {
            *count += 1;
        }
    }
    counts
}

fn partitions(state: &ClusterState) -> Vec<(PartitionStatus, u64)> {
    let copies = &state.partitions;
    let not_online = copies.not_online().filter_map(|id| copies.get(id)).map(|row| row.status);
    let mut counts = count(PartitionStatus::ALL, &mut not_online.into_iter());
    let others: u64 = counts.iter().map(|(_, count)| count).sum();
    if let Some((_, online)) = counts.iter_mut().find(|(status, _)| *status == PartitionStatus::Online) {
        *online = (copies.len() as u64).saturating_sub(others);
    }
    counts
}

/// Counts partitions with too few copies, and those with too few in-sync copies.
fn under_replicated(state: &ClusterState) -> u64 {
    let wanted = |table| state.tables.get(&table).map_or(0, |table| usize::from(table.replication));
    let few = state
        .tables
        .keys()
        .map(|table| state.partitions.with_copies_below(*table, wanted(*table)).count())
        .sum::<usize>();
    let waiting = state.partitions.unsettled().filter(|row| {
        let wanted = wanted(row.id.table);
        row.status != PartitionStatus::Unassigned && row.placements.len() >= wanted && row.live().count() < wanted
    });
    (few + waiting.count()) as u64
}

fn moves(state: &ClusterState) -> Vec<(MovePhase, u64)> {
    let running = state.migrations.all_running().map(|migration| phase(state, migration).word());
    let mut counts = count(&Totals::OPEN_PHASES, &mut running.into_iter());
    let running: u64 = counts.iter().map(|(_, count)| count).sum();
    if let Some((_, queued)) = counts.first_mut() {
        *queued += (state.migrations.active_count() as u64).saturating_sub(running);
    }
    counts
}
