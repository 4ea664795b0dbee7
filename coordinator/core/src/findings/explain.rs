//! Reasons for unavailable partitions, and counts of all objects: data, not prose.

use crate::findings::remembered::Remembered;
use crate::leases::{Successors, served_tables};
use crate::placement::lack::{Lack, Lacks};
use crate::placement::out_of_sync;
use crate::placement::waits::Waits;
use crate::placement::withheld::Withheld;
use crate::ranges::reshapings::Reshaping;
use crate::state::ClusterState;
use crate::state::controls::Note;
use crate::state::migration::MigrationId;
use crate::state::node_row::NodeRow;
use archon_types::{
    Epoch, Holds, Incarnation, Millis, NodeId, NodeStatus, Partition, PartitionId, PartitionStatus, Placement,
    PlacementId, ReplicaState, Table,
};
use serde::{Deserialize, Serialize};

/// A reason why a partition is unavailable or degraded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are named after the types they hold, which are documented.
pub enum Why {
    /// The first assignment waits for nodes.
    NotEnoughNodes { have: u64, need: u64 },
    /// The first assignment follows at once.
    AboutToBeAssigned,
    /// No participant of its table takes partitions.
    NoParticipant { table: String },
    /// No node has room for its copies: these many nodes are at their limits. `plan`: balancing the existing copies may
    /// make room.
    NodesAtLimit { full: u32, plan: bool },
    /// Its leader hears too few Live copies, including its own, and admits no write.
    LeaderHearsTooFew { node: NodeId, hears: u32, need: u32 },
    /// A failed node's copy is not replaced, since too many nodes are failed.
    RepairWithheld { failed: u64, of: u64 },
    /// Its leader is named and does not serve yet.
    TakingOver { node: NodeId },
    /// A copy knew an epoch that was not granted; leadership is being granted above it.
    EpochSurpassed { known: Epoch },
    /// The former holder's lease may still run.
    WaitingForLease { node: NodeId, incarnation: Incarnation },
    /// The only in-sync copies are on failed nodes: one of them must come back.
    NoLiveReplica { node: NodeId, placement: PlacementId, since: Millis },
    /// A node with an in-sync copy has registered and not confirmed its incarnation.
    HolderRegistering { node: NodeId },
    /// A leader can be elected and follows at once.
    AboutToBeElected,
    /// No in-sync copy is left: only an operator can accept the loss of the data.
    DataLost,
    /// Fewer copies are in sync than wanted.
    UnderReplicated { have: u32, want: u32 },
    /// A copy was lost or damaged; it is kept and not replaced until `need` others are in sync on nodes that are alive.
    LostCopyKept { node: NodeId, alive: u32, need: u32 },
    /// An operator has taken it offline.
    Offline { note: Note },
    /// Every participant that takes partitions of its table is barred from it.
    AllBarred { participants: u32 },
    /// Its owner should give it up, and stays: no other participant may own it.
    OwnerStays { node: NodeId },
    /// All participants that could own it, this many, gave it up a moment ago.
    GivenUp { participants: u32 },
    /// It is being moved, and the move is blocked.
    MoveWaits { migration: MigrationId, why: String },
}

/// Explains any number of partitions; shared inputs are computed once.
pub struct Explainer<'a> {
    state: &'a ClusterState,
    remembered: &'a Remembered,
    waits: Waits<'a>,
    lacks: Lacks<'a>,
}

/// Number of partitions with missing copies that are not being made, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shortage {
    /// The nodes that could take one are at their limits.
    pub nodes_at_limit: u32,
    /// Other nodes have room, so that a plan may make room for the copy.
    pub plan: bool,
    /// No other node takes copies.
    pub no_node: u32,
    /// Too many nodes are failed, and their number.
    pub withheld: Option<(u32, Withheld)>,
}

impl<'a> Explainer<'a> {
    /// Creates an explainer from the state and the memory of the leading coordinator.
    pub fn new(state: &'a ClusterState, remembered: &'a Remembered) -> Self {
        Self { state, remembered, waits: Waits::new(state), lacks: Lacks::new(state, remembered) }
    }

    /// Returns the partitions with leaders known to admit no write.
    pub fn isolated(&self) -> impl Iterator<Item = PartitionId> {
        self.remembered.isolated.keys().copied()
    }

    /// Returns the missing copies that are not being made, over all partitions.
    pub fn shortage(&self) -> Shortage {
        let mut shortage = Shortage::default();
        for row in self.lacks.candidates() {
            match self.lacks.of(row) {
                Some(Lack::NodesAtLimit { plan, .. }) => {
                    shortage.nodes_at_limit += 1;
                    shortage.plan |= plan;
                }
                Some(Lack::NoNode) => shortage.no_node += 1,
                Some(Lack::Withheld(withheld)) => {
                    let before = shortage.withheld.map_or(0, |(partitions, _)| partitions);
                    shortage.withheld = Some((before + 1, withheld));
                }
                None => {}
            }
        }
        shortage
    }

    /// Returns the reasons why a partition is unavailable or degraded; empty if there is none. `None`: there is no such
    /// partition.
    pub fn explain(&self, partition: PartitionId) -> Option<Vec<Why>> {
        let state = self.state;
        let row = state.partitions.get(partition)?;
        let table = state.tables.get(&partition.table)?;
        let mut why = Vec::new();
        let live = row.live().count();
        if let Some(note) = state.controls.offline_of(partition) {
            why.push(Why::Offline { note: note.clone() });
        }
        match row.status {
            _ if state.is_offline(partition) => {}
            PartitionStatus::Unassigned | PartitionStatus::Unavailable if table.holds == Holds::Lease => {
                self.not_owned(row, table, &mut why);
            }
            PartitionStatus::Unassigned => {
                let (have, need) = crate::placement::assign::nodes_needed(state, table.replication);
                why.push(if have < need {
                    Why::NotEnoughNodes { have, need }
                } else {
                    match crate::placement::assign::nodes_at_limit(state, partition) {
                        Some((full, plan)) => Why::NodesAtLimit { full, plan },
                        None => Why::AboutToBeAssigned,
                    }
                });
            }
            PartitionStatus::Assigned => {
                why.extend(row.leader_placement().map(|leader| Why::TakingOver { node: leader.node }))
            }
            PartitionStatus::Unavailable if live == 0 => why.push(Why::DataLost),
            PartitionStatus::Unavailable | PartitionStatus::Offline => self.without_leader(row, &mut why),
            PartitionStatus::Online if table.holds == Holds::Lease => {
                why.extend(Successors::new(state).staying(row).map(|node| Why::OwnerStays { node }));
            }
            PartitionStatus::Online => why.extend(self.isolated_leader(row)),
        }
        if let Some(known) = state.surpassed.get(&partition) {
            why.push(Why::EpochSurpassed { known: *known });
        }
        let short = row.status != PartitionStatus::Unassigned && live > 0 && live < usize::from(table.replication);
        if short {
            let have = u32::try_from(live).unwrap_or(u32::MAX);
            why.push(Why::UnderReplicated { have, want: u32::from(table.replication) });
        }
        if live > 0 {
            why.extend(self.lost_copies_kept(row));
        }
        match self.lacks.of(row) {
            Some(Lack::Withheld(Withheld { failed, of })) => why.push(Why::RepairWithheld { failed, of }),
            Some(Lack::NodesAtLimit { full, plan }) => why.push(Why::NodesAtLimit { full, plan }),
            Some(Lack::NoNode) | None => {}
        }
        if let Some(migration) = state.migrations.running(partition)
            && let Some(reason) = self.waits.waiting_for(migration)
        {
            why.push(Why::MoveWaits { migration: migration.id, why: reason });
        }
        Some(why)
    }

    fn not_owned(&self, row: &Partition, table: &Table, why: &mut Vec<Why>) {
        for former in self.state.former_leaders.of_partition(row.id).filter(|former| !former.lapsed) {
            why.push(Why::WaitingForLease { node: former.node, incarnation: former.incarnation });
        }
        if !why.is_empty() {
            return;
        }
        let serving = || self.state.participants.serving(&table.name).filter(|row| row.takes_placements());
        let full = serving().filter(|row| row.room(self.state) == 0);
        let (all, full) = (served_tables::eligible_count(self.state, table), full.count());
        let barred = serving().filter(|serving| self.state.bars(row.id, serving.node.id)).count();
        let gave_up = |node: NodeId| self.remembered.gave_up(node, row.id);
        let could = |serving: &&NodeRow| !self.state.bars(row.id, serving.node.id) && serving.room(self.state) > 0;
        let given_up = serving().filter(could).filter(|serving| gave_up(serving.node.id)).count();
        why.push(match all {
            0 => Why::NoParticipant { table: table.name.clone() },
            all if all == barred => Why::AllBarred { participants: u32::try_from(all).unwrap_or(u32::MAX) },
            all if all == full => Why::NodesAtLimit { full: u32::try_from(full).unwrap_or(u32::MAX), plan: false },
            _ if given_up > 0 && given_up == serving().filter(could).count() => {
                Why::GivenUp { participants: u32::try_from(given_up).unwrap_or(u32::MAX) }
            }
            _ if row.status == PartitionStatus::Unassigned => Why::AboutToBeAssigned,
            _ => Why::AboutToBeElected,
        });
    }

    fn without_leader(&self, row: &Partition, why: &mut Vec<Why>) {
        for former in self.state.former_leaders.of_partition(row.id).filter(|former| !former.lapsed) {
            why.push(Why::WaitingForLease { node: former.node, incarnation: former.incarnation });
        }
        for placement in row.live() {
            let Some(node) = self.state.node(placement.node) else { continue };
            if node.node.status != NodeStatus::Alive {
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

    fn lost_copies_kept(&self, row: &Partition) -> impl Iterator<Item = Why> {
        let lost = |copy: &&Placement| copy.state == ReplicaState::Load && out_of_sync::is_lost(self.state, copy.id);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        row.placements.iter().filter(lost).filter_map(move |copy| {
            let (alive, need) = out_of_sync::may_go(self.state, row, copy.id).err()?;
            Some(Why::LostCopyKept { node: copy.node, alive: count(alive), need: count(need) })
        })
    }

    fn isolated_leader(&self, row: &Partition) -> Option<Why> {
        let (_, hears) = self.remembered.isolated.get(&row.id).filter(|(epoch, _)| *epoch == row.epoch)?;
        let (leader, need) = (row.leader_placement()?, u32::from(row.min_in_sync));
        Some(Why::LeaderHearsTooFew { node: leader.node, hears: *hears, need })
    }
}

/// Returns the reasons why one partition is unavailable or degraded. For several see [`Explainer`].
pub fn explain(state: &ClusterState, remembered: &Remembered, partition: PartitionId) -> Option<Vec<Why>> {
    Explainer::new(state, remembered).explain(partition)
}

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
        reshapings_running: u32::try_from(Reshaping::count(state)).unwrap_or(u32::MAX),
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
