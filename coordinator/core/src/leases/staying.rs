//! Leases that should leave their owners and stay, since no other participant may own them: a bar or drain without
//! effect.

use crate::state::ClusterState;
use archon_types::{NodeId, Partition, PartitionId, PartitionStatus, TableId};
use std::collections::BTreeMap;

/// Possible next owners per table, as far as the table alone determines them. Computed once for each table.
pub(crate) struct Successors<'a> {
    state: &'a ClusterState,
    by_table: BTreeMap<TableId, Vec<(NodeId, u32)>>,
}

impl<'a> Successors<'a> {
    pub(crate) const fn new(state: &'a ClusterState) -> Self {
        Self { state, by_table: BTreeMap::new() }
    }

    /// Returns the owner of a lease, if it should give it up and no other participant may own it.
    pub(crate) fn staying(&mut self, row: &Partition) -> Option<NodeId> {
        let owner = self.leaving(row)?;
        (!self.may_go(row, owner)).then_some(owner)
    }

    /// Returns true if any participant other than its owner may own this lease.
    pub(crate) fn may_go(&mut self, row: &Partition, owner: NodeId) -> bool {
        let state = self.state;
        self.of_table(row.id.table).iter().any(|(node, _)| *node != owner && !state.bars(row.id, *node))
    }

    /// Returns the number of further partitions of the table that the other participants take together.
    pub(crate) fn room_beside(&mut self, table: TableId, owner: NodeId) -> u64 {
        self.of_table(table).iter().filter(|(node, _)| *node != owner).map(|(_, room)| u64::from(*room)).sum()
    }

    /// Returns the owner of a lease that it should give up, unless a move of it is in progress.
    fn leaving(&self, row: &Partition) -> Option<NodeId> {
        let owner = row.leader_placement()?.node;
        let goal = self.state.participants.get(&owner)?.node.goal;
        let leaves = goal.gives_up_leaderships() || self.state.bars(row.id, owner);
        (leaves && row.status == PartitionStatus::Online && row.placements.len() == 1).then_some(owner)
    }

    fn of_table(&mut self, table: TableId) -> &[(NodeId, u32)] {
        let state = self.state;
        self.by_table.entry(table).or_insert_with(|| {
            let Some(table) = state.tables.get(&table) else { return Vec::new() };
            let takes = state.participants.serving(&table.name).filter(|row| row.takes_placements());
            let rooms = takes.map(|row| (row.node.id, row.room(state)));
            rooms.filter(|(_, room)| *room > 0).collect()
        })
    }
}

/// Returns every lease that its owner should give up and that no other participant may own, by owner.
pub fn staying_leases(state: &ClusterState) -> BTreeMap<NodeId, Vec<PartitionId>> {
    let mut successors = Successors::new(state);
    let mut staying: BTreeMap<NodeId, Vec<PartitionId>> = BTreeMap::new();
    let concerned = state.participants.values().map(|row| &row.node);
    let concerned = concerned.filter(|node| node.goal.gives_up_leaderships() || state.bars_any(node.id));
    for row in concerned.flat_map(|node| state.partitions.on_node(node.id)) {
        if let Some(owner) = successors.staying(row) {
            staying.entry(owner).or_default().push(row.id);
        }
    }
    staying
}
