//! Operators' orders refer to existing objects and agree with the rows: a partition is `Offline` exactly if it was
//! taken offline and has no leader, a member is in maintenance exactly if that is its goal.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use crate::state::controls::Bar;
use archon_types::{NodeGoal, PartitionStatus};

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    for (member, bar, _) in state.controls.bars() {
        let there = match bar {
            Bar::Table(table) => state.tables.contains_key(&table),
            Bar::Partition(partition) => state.partitions.get(partition).is_some(),
        };
        if !there || state.node(member).is_none() {
            return violated("controls", format!("{bar:?} against {member}: one of the two is gone"));
        }
    }
    for (partition, _) in state.controls.offline() {
        if state.partitions.get(partition).is_none() {
            return violated("controls", format!("{partition} is offline and gone"));
        }
    }
    for row in state.partitions.iter() {
        let assigned = row.status != PartitionStatus::Unassigned;
        let idle = assigned && row.leader.is_none() && state.is_offline(row.id);
        if idle != (row.status == PartitionStatus::Offline) {
            return violated("controls", format!("{} is {}", row.id, row.status));
        }
    }
    for row in state.members() {
        let maintained = state.controls.maintenance_of(row.node.id).is_some();
        if maintained != (row.node.goal == NodeGoal::Maintain) {
            return violated("controls", format!("{} is to {}", row.node.name, row.node.goal));
        }
    }
    Ok(())
}
