//! Effect of staged edits.

use crate::command::apply::dropped::merge_away;
use crate::command::apply::entry::Entry;
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::former_leaders::FormerLeader;
use crate::state::out_of_sync_copy::{Condition, OutOfSyncCopy};
use archon_types::{Epoch, NodeGoal, NodeId, Partition, PartitionId, PlacementId, ReplicaState, Table, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// The effect of [`StagedRows`](super::StagedRows): borrows nothing, so it can be committed to the state it was
/// computed from.
pub(crate) struct Effect {
    pub(super) rows: BTreeMap<PartitionId, Partition>,
    pub(super) former_leaders: Vec<FormerLeaderChange>,
    pub(super) placement_last: PlacementId,
    pub(super) events: Vec<EventKind>,
    /// Partitions of these edits: true if assigned, false if reported Online.
    pub(super) untouched: BTreeMap<PartitionId, bool>,
    /// Partitions of these edits: `Some` if an epoch was passed over, `None` if they serve above it.
    pub(super) surpassed: BTreeMap<PartitionId, Option<Epoch>>,
    /// Copies that hold less than everything up to the moment they left sync.
    pub(super) spoiled: BTreeMap<PlacementId, CopyCondition>,
    /// Unload copies on alive nodes: the order to delete them is issued.
    pub(super) delete_issued: BTreeSet<PlacementId>,
    /// Tables that gave a number to a partition.
    pub(super) tables: BTreeMap<TableId, Table>,
    /// Copies of abandoned new partitions, to be deleted.
    pub(super) condemned: Vec<(NodeId, PlacementId, PartitionId)>,
    /// Partitions that were split, each with its new partition.
    pub(super) parted: Vec<(PartitionId, PartitionId)>,
    /// Partitions merged into another one.
    pub(super) merged_away: Vec<PartitionId>,
}

/// Condition of an out-of-sync copy.
#[derive(Clone, Copy)]
pub(super) struct CopyCondition {
    /// It holds no more than this.
    pub(super) condition: Condition,
    /// It is not brought up to date.
    pub(super) lost: bool,
}

pub(super) enum FormerLeaderChange {
    Set(FormerLeader),
    Remove(PartitionId, Epoch),
}

impl Effect {
    pub(crate) fn commit(self, state: &mut ClusterState, entry: Entry<'_>) {
        let mut vacated = BTreeSet::new();
        for row in self.rows.into_values() {
            debug_assert!(row.leader.is_none_or(|leader| row.live().any(|live| live.id == leader)), "{row:?}");
            let before = state.partitions.get(row.id).map(|row| row.placements.clone()).unwrap_or_default();
            for placement in before {
                match row.placement(placement.id).map(|now| now.state) {
                    Some(ReplicaState::Unload) if self.delete_issued.contains(&placement.id) => {
                        state.departed.remove(&placement.id);
                    }
                    Some(ReplicaState::Load | ReplicaState::Unload) => {
                        let spoiled = self.spoiled.get(&placement.id).copied();
                        if placement.state == ReplicaState::Live {
                            let CopyCondition { condition, lost } =
                                spoiled.unwrap_or(CopyCondition { condition: Condition::Whole, lost: false });
                            state.departed.insert(placement.id, OutOfSyncCopy { at: row.version, condition, lost });
                        } else if let (Some(spoiled), Some(departed)) = (spoiled, state.departed.get_mut(&placement.id))
                        {
                            departed.condition = departed.condition.min(spoiled.condition);
                            departed.lost |= spoiled.lost;
                        }
                    }
                    Some(ReplicaState::Live) => {
                        state.departed.remove(&placement.id);
                    }
                    None => {
                        state.departed.remove(&placement.id);
                        vacated.insert(placement.node);
                    }
                }
            }
            state.controls.reached(row.id, row.epoch);
            state.partitions.insert(row);
        }
        for change in self.former_leaders {
            match change {
                FormerLeaderChange::Set(former) => state.former_leaders.insert(former),
                FormerLeaderChange::Remove(partition, epoch) => {
                    state.former_leaders.remove(partition, epoch);
                }
            }
        }
        state.placement_last = self.placement_last;
        state.tables.extend(self.tables);
        for (node, placement, partition) in self.condemned {
            state.condemned.insert(node, placement, partition);
        }
        for (partition, untouched) in self.untouched {
            if untouched {
                state.untouched.insert(partition);
            } else {
                state.untouched.remove(&partition);
            }
        }
        for (partition, surpassed) in self.surpassed {
            match surpassed {
                Some(epoch) => state.surpassed.insert(partition, epoch),
                None => state.surpassed.remove(&partition),
            };
        }
        for (left, right) in self.parted {
            if state.controls.inherit_bars(left, right) {
                state.controls_version = entry.version();
            }
        }
        for partition in self.merged_away {
            vacated.extend(merge_away(state, entry, partition));
        }
        for what in self.events {
            entry.note(state, what);
        }
        for node in vacated {
            let drained = state.node(node).is_some_and(|row| row.node.goal == NodeGoal::Drain);
            if drained && state.partitions.count_on(node) == 0 {
                entry.note(state, EventKind::NodeDrained { node });
            }
        }
    }
}
