//! Effects of standing orders on partitions and members.

use crate::state::ClusterState;
use crate::state::controls::order::Bar;
use archon_types::{NodeId, PartitionId, TableId};

impl ClusterState {
    /// Returns true if an operator barred this member from the partition, or it is a participant that was not granted the table.
    pub fn bars(&self, partition: PartitionId, member: NodeId) -> bool {
        self.controls.has_bar(member, Bar::Partition(partition)) || self.bars_all(partition.table, member)
    }

    /// Returns true if an operator barred this member from all of the table, or it is a participant that was not granted it.
    pub(crate) fn bars_all(&self, table: TableId, member: NodeId) -> bool {
        self.controls.has_bar(member, Bar::Table(table)) || self.lacks_grant(member, table)
    }

    /// Returns true if there may be partitions from which the member is barred.
    pub(crate) fn bars_any(&self, member: NodeId) -> bool {
        self.controls.bars_member(member) || self.lacks_any_grant(member)
    }

    /// Returns true if an operator has taken the partition offline.
    pub fn is_offline(&self, partition: PartitionId) -> bool {
        self.controls.offline.contains_key(&partition)
    }

    /// Returns the partitions that are led but should not be, or not in this epoch.
    pub(crate) fn ending(&self) -> impl Iterator<Item = PartitionId> {
        let led = |partition: &PartitionId| self.partitions.get(*partition).is_some_and(|row| row.leader.is_some());
        let offline = self.controls.offline.keys().copied();
        offline.chain(self.controls.bumped.keys().copied().filter(|partition| self.is_bumped(*partition))).filter(led)
    }

    /// Returns true if the present leadership of the partition is to be renewed.
    pub fn is_bumped(&self, partition: PartitionId) -> bool {
        let row = self.partitions.get(partition);
        row.is_some_and(|row| self.controls.bumped.get(&partition) == Some(&row.epoch))
    }
}
